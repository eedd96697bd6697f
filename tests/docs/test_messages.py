"""The list of messages: which texts of a module it holds."""

from __future__ import annotations

import ast

import pytest

from docs.generate.messages import texts

HELP = '''
@click.command(cls=Command)
def show(name: str) -> None:
    """Show one kernel.

    \\b
      kmint show 3.1

    The first
    line counts.
    """
'''


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("raise ValueError('no such kernel')", ["no such kernel"]),
        ("raise ValueError(f'no kernel {name}')", ["no kernel {name}"]),
        (HELP, ["Show one kernel.", "The first line counts."]),
    ],
)
def test_messages_and_help_are_listed(module: str, expected: list[str]) -> None:
    """A paragraph of help is one message; the examples in help are none."""
    assert list(texts(ast.parse(module))) == expected


@pytest.mark.parametrize(
    "module",
    [
        "NAMES = frozenset('arange argmax load store'.split())",
        "NAMES = 'arange argmax load store'\nALL = NAMES.split()",
        "LIST = 'load store'\nALL = ' '.join((LIST, OTHER)).split()",
        '"""What the module does."""',
        "size: int\n'Bytes of one row.'",
        "QUERY = 'SELECT name FROM kernels'",
    ],
)
def test_lists_of_names_and_comments_are_no_messages(module: str) -> None:
    assert list(texts(ast.parse(module))) == []
