"""`python -m kmint_tui` is `kmint`."""

from __future__ import annotations

import sys

from kmint_tui.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
