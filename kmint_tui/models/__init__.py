"""The smiths that kmint can use: their facts, their files here, and the checks of a file."""
