"""What a candidate's process may touch: single-use processes behind namespaces, Landlock, a system-call filter and limits."""
