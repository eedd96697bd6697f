"""The referee judged: kernels whose right verdict is known, and a runner that compares.

`gold/` must pass, `wrong/` (plausible slips) and `cheats/` (by number of the catalogue in the project's notes on cheating) must
be rejected by the guard their header names. Every file is the text of a candidate; the suffix keeps tools from importing it.
"""
