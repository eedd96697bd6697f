"""One screen a task, each with its style sheet next to it."""
