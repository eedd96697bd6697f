"""Triton's interpreter with a GPU's semantics and checked memory. Processes other than the
sandboxed workers import `request` only.
"""
