"""The process that owns the GPU: starting it, talking to it, and what it answers."""
