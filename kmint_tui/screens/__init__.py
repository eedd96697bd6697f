"""One screen a task, each with its style sheet beside it."""
