"""Times of a replay next to its baselines, and their statistics."""
