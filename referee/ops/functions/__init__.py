"""Functions of the catalogue: operations with several results, other layouts or other dtypes.

Each is a PyTorch function in a file of this folder, as an engineer would write it. It is judged as
a user's own function is: its file and inputs are a reference. `catalogue_functions` lists them.
"""
