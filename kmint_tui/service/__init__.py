"""A warm referee on this machine, which commands of the same user reach through a Unix socket."""
