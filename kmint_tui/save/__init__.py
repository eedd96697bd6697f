"""Saves a kernel that passed into a user's project: one file, its receipt and its test."""
