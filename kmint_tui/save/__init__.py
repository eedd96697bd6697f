"""A kernel that passed, put into somebody's project: one file, its receipt and its test."""
