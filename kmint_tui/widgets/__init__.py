"""Small parts of the screens."""
