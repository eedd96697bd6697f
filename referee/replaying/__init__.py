"""Executes launch plans on the GPU in kmint's buffers, and checks test cases with them."""
