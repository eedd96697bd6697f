"""Triton's own interpreter, made faithful and memory-checked. Only the sandboxed workers import more than `request` of it."""
