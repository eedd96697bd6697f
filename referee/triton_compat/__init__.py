"""Every private interface of Triton that the referee uses, for the versions of `triton_version`.

`tests/referee/trace/test_triton_compat.py` pins the behaviour.
"""
