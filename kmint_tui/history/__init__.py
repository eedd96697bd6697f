"""Everything that was minted: every draft with its prompt, seed, model, verdict and environment, in
one SQLite file.
"""
