"""The checks of a compiled candidate: on the CPU path, and next to a replay on a GPU."""
