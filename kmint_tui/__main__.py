"""`python -m kmint_tui` is `kmint`."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # `-m` puts the current folder first on the path. It may stay only where it is the checkout that
    # kmint runs from.
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not sys.flags.safe_path and os.path.realpath(sys.path[0]) == os.path.realpath(
        "."
    ) != os.path.realpath(own):
        del sys.path[0]

    from kmint_tui.cli.main import command

    command()
