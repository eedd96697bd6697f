"""The work on books: building one, judging it again, and saving kernels out of it."""
