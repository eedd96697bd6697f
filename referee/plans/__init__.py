"""Launch plans: what `run` does as data, its strict parser and checks, and where its buffers lie."""
