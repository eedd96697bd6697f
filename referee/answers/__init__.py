"""Correctness of answers: the float64 reference, the error budget of every element, and one line of
feedback on an error.
"""
