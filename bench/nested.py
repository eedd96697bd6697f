"""Nested results as indented lines."""

from __future__ import annotations


def show_nested(value: object, indent: int = 4) -> None:
    """Print `value`, dictionaries key by key, indented by `indent` spaces."""
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict):
                print(f"{' ' * indent}{key}:")
                show_nested(item, indent + 4)
            else:
                print(f"{' ' * indent}{key}: {item}")
    else:
        print(f"{' ' * indent}{value}")
