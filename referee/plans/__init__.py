"""Launch plans: the actions of `run` as data, a strict parser and checks, and the places of
buffers.
"""
