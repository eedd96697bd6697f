"""Text that tries to steer a terminal or an interface, and a history that is full of it."""

from __future__ import annotations

import dataclasses
import re

from kmint_tui import paths
from kmint_tui.history.records import NewDraft
from kmint_tui.history.store import History
from tests.tui.filled import SESSION, TIMING, verdict

CLIPBOARD, TITLE, LINK = "\x1b]52;c;ZXZpbA==\x07", "\x1b]0;t\x07", "\x1b]8;;http://e\x1b\\"
C1, TURNED = "\x9b31m\x9d0;t\x9c", "\u202eb\u2066"
EVIL = f"e{CLIPBOARD}{TITLE}{LINK}{C1}{TURNED}\x7f\x00\r"
MARKUP = "[@click=app.quit][/nothing][$error"
SOURCE = f"# {EVIL}\ndef run(x): ...\n"
STEERS = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def fill_evil() -> None:
    """A history whose every text is hostile, as an import may bring it: session 1 with drafts 0 and
    1."""
    said = verdict("rejected", "correct", f"{EVIL}{MARKUP}")
    checks = tuple(
        dataclasses.replace(check, name=EVIL + check.name, detail=EVIL) for check in said.checks
    )
    cells = tuple(dataclasses.replace(cell, name=EVIL, detail=EVIL) for cell in said.cells)
    timing = {
        **TIMING,
        "neighbours": [EVIL + MARKUP],
        "missing": {EVIL + MARKUP: MARKUP},
        "notes": [MARKUP],
    }
    timing["device"] = {
        **TIMING["device"],
        MARKUP: TIMING["device"]["eager"],
        EVIL: TIMING["device"]["eager"],
    }
    said = dataclasses.replace(said, checks=checks, cells=cells, timing=timing, mode="replay")
    told = dataclasses.replace(
        SESSION,
        op=f"{EVIL}{MARKUP}",
        model=f"{EVIL}{MARKUP}",
        system=EVIL,
        user=EVIL,
        settings={EVIL: EVIL},
    )
    with History(paths.history_file()) as history:
        session = history.begin(told)
        history.add_draft(
            session,
            NewDraft(
                number=0,
                source=SOURCE,
                seed=1,
                temperature=0.7,
                tokens=5,
                seconds=0.1,
                finish="stop",
                changes=EVIL,
            ),
        )
        history.add_draft(
            session,
            NewDraft(
                number=1,
                source=f"# {EVIL}\n",
                seed=1,
                temperature=0.7,
                tokens=5,
                seconds=0.1,
                finish="stop",
                parent=0,
                author="tuner",
                changes=EVIL,
            ),
        )
        history.set_verdict(session, 0, said.to_json(), ratio=None)
        history.finish(session, "done")
