"""`python -m docs.generate [--check]`."""

from __future__ import annotations

import sys

from docs.generate.pages import stale, write


def main(arguments: list[str]) -> int:
    """Write what is out of date, or only name it."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m docs.generate [--check]", file=sys.stderr)
        return 2
    old = stale()
    for page in old:
        print(f"{'out of date' if arguments else 'wrote'}: {page}")
    if arguments:
        return 1 if old else 0
    write()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
