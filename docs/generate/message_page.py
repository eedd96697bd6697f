"""docs/messages.md: every message, module by module."""

from __future__ import annotations

from itertools import groupby

from docs.generate.messages import messages

_HEAD = """# Messages

Every text of two words and more that kmint, its referee and its converter may show, by module.
Braces hold values. This page is generated from the code by `python -m docs.generate`.
`python -m docs.generate.words` names the messages that break the
[rules of plain English](../CONTRIBUTING.md#plain-english).

"""


def message_page() -> str:
    """The whole page."""
    sections = []
    for module, group in groupby(messages(), key=lambda message: message.module):
        lines = [f"- {_plain(message.text)}" for message in group]
        sections.append("\n".join((f"## {module}", "", *lines)))
    return _HEAD + "\n\n".join(sections) + "\n"


def _plain(text: str) -> str:
    """The text as Markdown shows it unchanged."""
    for sign in "\\*_<>[]":
        text = text.replace(sign, f"\\{sign}")
    return text
