"""The sandbox of a candidate's process: single-use processes with namespaces, Landlock, a
system-call filter and limits.
"""
