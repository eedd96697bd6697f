"""From a plan's kernels to machine code for a target, compiled in the sandbox and returned as
data.
"""
