"""`kmint ops`: the catalogue, searchable; `kmint ops show OP`: one operation in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kmint_tui.cli.framework import LazyGroup
from kmint_tui.cli.options import OPERATION, complete_operation
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import Table
from kmint_tui.core.operations import case_lists, op_document, ops_document
from kmint_tui.core.task import operation

if TYPE_CHECKING:
    from referee.ops import Cell, Op


@click.group(cls=LazyGroup, invoke_without_command=True)
@click.option(
    "--search",
    "-s",
    metavar="WORDS",
    help="Only operations that hold all WORDS, by any of their usual names.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.ops/1).")
@click.pass_context
def ops(context: click.Context, search: str | None, as_json: bool) -> None:
    """List the operations kmint has a trusted reference for.

    \b
      kmint ops --search "layer norm"
      kmint ops --search "residual rms gelu"
      kmint ops show rmsnorm

    Two stacked activations work too, by name: add_rmsnorm_gelu_tanh.
    """
    if context.invoked_subcommand is not None:
        return
    from kmint_tui.core.op_search import find

    state = context.ensure_object(State)
    found = find(search or "")
    if as_json:
        state.out.document("kmint.ops/1", ops_document(found))
        return
    state.out.table(
        Table(("op", "family", "arguments", "what it does"), [_row(op) for op in found])
    )
    if found:
        state.err.hint(
            f"{len(found)} operations; `kmint ops show OP` for one of them, `kmint mint OP` to mint it"
        )
    else:
        state.err.hint(f"no operation holds all words of {search!r}; `kmint ops` lists all of them")


@ops.command("show")
@click.argument(
    "name",
    metavar="OP",
    type=OPERATION,
    shell_complete=complete_operation,
    help="An operation, by its name or by words.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.op/1).")
@click.pass_obj
def show(state: State, name: str, as_json: bool) -> None:
    """Show an operation: signature, formula and the test cases it is judged at.

    A verdict has the fixed cases that are listed, and others that its secret seed draws; only their
    number is known before.
    """
    from kmint_tui.core.op_search import other_words
    from referee.ops import card_text

    op = operation(name)
    if as_json:
        state.out.document("kmint.op/1", op_document(op))
        return
    profiles = case_lists(op)
    out = state.out
    out.pairs(
        [
            ("op", op.name),
            ("what it does", op.title),
            ("signature", card_text(op).signature),
            ("formula", op.formula),
            ("family", op.family),
            ("difficulty", op.difficulty),
            ("also found by", ", ".join(other_words(op)) or "its name only"),
        ]
    )
    for profile, cases in profiles.items():
        out.text("")
        out.heading(f"{'with' if profile == 'gpu' else 'without'} a GPU: {cases.text}")
        rows = [(case.name, case.role, _inputs(case)) for case in (*cases.fixed, *cases.shown)]
        out.table(Table(("fixed case", "role", "inputs"), rows))


def _row(op: Op) -> tuple[str, ...]:
    from referee.ops import signature

    return op.name, op.family, ", ".join(signature(op)), op.title


def _inputs(cell: Cell) -> str:
    return "  ".join(f"{spec.name}{list(spec.shape)} {spec.dtype}" for spec in cell.inputs)
