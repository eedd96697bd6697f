"""Judging on several devices: the cards of this host, or those of a Ray cluster."""
