"""The order of the import lines of a saved file, which is that of Ruff."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable


def in_order(lines: Iterable[str]) -> list[str]:
    """Import lines, those of Python before an empty line, `import` before `from`, each once."""
    ordered = sorted(set(lines), key=lambda line: (line.startswith("from"), line))
    own = [line for line in ordered if re.split(r"[ .]", line)[1] in sys.stdlib_module_names]
    return [*own, *([""] if own else []), *(line for line in ordered if line not in own)]
