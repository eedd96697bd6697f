"""From a candidate's text to launch plans: its Python runs in the sandbox, without a GPU and
without data.
"""
