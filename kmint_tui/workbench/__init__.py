"""What the terminal interface knows and does, without the interface: running sessions, live state, facts, command lines."""
