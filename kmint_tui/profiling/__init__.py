"""The profile of one kernel: facts of its compiled form, and a measurement on a GPU."""
