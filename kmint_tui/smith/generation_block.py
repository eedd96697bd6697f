"""The `{% generation %}` tag of chat templates.

It marks the model's own words for training; prompts contain them unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jinja2 import nodes
from jinja2.ext import Extension

if TYPE_CHECKING:
    from collections.abc import Callable

    from jinja2.parser import Parser


class GenerationBlock(Extension):
    """Prints the text between the tags, as transformers does."""

    tags = {"generation"}  # noqa: RUF012  # jinja2's own form

    def parse(self, parser: Parser) -> nodes.Node:
        """The tag's content as a called block."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_printed"), [], [], body).set_lineno(line)

    def _printed(self, caller: Callable[[], str]) -> str:
        return caller()
