"""How long a replay takes, beside its baselines, and what the figures let one say."""
