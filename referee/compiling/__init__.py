"""From the kernels of a plan to machine code for a target, in the sandbox, and back as data."""
