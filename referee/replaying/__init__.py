"""Executing launch plans on the GPU, on buffers of our own, and judging cells by it."""
