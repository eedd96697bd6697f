"""Books: the best verified kernel of each operation, shape and dtype, one book for each kind of
device.
"""
