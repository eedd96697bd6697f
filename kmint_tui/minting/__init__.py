"""The parts of one minting: the request, its drafts, their ranking and the result."""
