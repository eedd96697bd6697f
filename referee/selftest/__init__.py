"""The selftest of the referee: kernels with known verdicts, and a runner that compares.

`gold/` must pass. `wrong/` (wrong kernels) and `cheats/` must be rejected by the guard that their
header names. Cheats have a number in the project's catalogue. Every file is the text of a
candidate; the suffix keeps tools from importing it.
"""
