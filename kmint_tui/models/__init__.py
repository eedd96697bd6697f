"""The smiths kmint can use: what is known of them, which are here, and whether a file is what it claims to be."""
