"""Whether an answer is right: float64, the error budget of every element, and one line on what is wrong."""
