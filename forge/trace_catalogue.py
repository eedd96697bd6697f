"""Writes the catalogue's graphs: `python -m forge.trace_catalogue`.

They ship as data, so that `kmint mint` of a catalogue operation needs no torch for them.
"""

from __future__ import annotations

import json

from kmint_tui.graph.operations import FILE
from kmint_tui.graph.trace import traced_operation
from referee.ops import listed


def document() -> str:
    """The file's text: every operation's program by name."""
    made = {op.name: traced_operation(op).to_json() for op in listed()}
    return json.dumps(made, separators=(",", ":")) + "\n"


def main() -> None:
    """Write the file."""
    text = document()
    FILE.write_text(text, encoding="utf-8")
    print(f"{FILE.name}: {len(text)} bytes, {len(json.loads(text))} operations")


if __name__ == "__main__":
    main()
