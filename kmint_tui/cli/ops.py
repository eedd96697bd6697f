"""`kmint ops`: the catalogue, searchable; `kmint ops show OP`: one operation in full."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from kmint_tui.cli.framework import LazyGroup
from kmint_tui.cli.operations import complete_operation, operation
from kmint_tui.cli.output import Table
from kmint_tui.cli.state import State

if TYPE_CHECKING:
    from referee.ops import Cell, Op


@click.group(cls=LazyGroup, invoke_without_command=True)
@click.option("--search", "-s", metavar="TEXT", help="Only operations whose name, title or family holds TEXT.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.ops/1).")
@click.pass_context
def ops(context: click.Context, search: str | None, as_json: bool) -> None:
    """List the operations kmint has a trusted reference for.

    \b
      kmint ops --search gelu
      kmint ops show rmsnorm

    Two stacked activations work too, by name: add_rmsnorm_gelu_tanh.
    """
    if context.invoked_subcommand is not None:
        return
    from referee.ops import catalogue

    state = context.ensure_object(State)
    found = [op for op in catalogue() if _matches(op, search)]
    if as_json:
        state.out.document("kmint.ops/1", {"ops": [_summary(op) for op in found]})
        return
    state.out.table(Table(("op", "family", "arguments", "what it does"), [_row(op) for op in found]))
    if found:
        state.err.hint(f"{len(found)} operations; `kmint ops show OP` for one of them, `kmint mint OP` to mint it")
    else:
        state.err.hint(f"no operation holds {search!r} in name, title or family; `kmint ops` lists all of them")


@ops.command("show")
@click.argument("name", metavar="OP", shell_complete=complete_operation)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.op/1).")
@click.pass_obj
def show(state: State, name: str, as_json: bool) -> None:
    """Show an operation: signature, formula and the cells it is judged at."""
    from referee.ops import card_text, cells

    op = operation(name)
    profiles = {"cpu": cells(op, profile="cpu"), "gpu": cells(op, profile="gpu")}
    if as_json:
        content = {**_summary(op), "cells": {profile: [asdict(cell) for cell in points] for profile, points in profiles.items()}}
        state.out.document("kmint.op/1", content)
        return
    out = state.out
    out.pairs(
        [
            ("op", op.name),
            ("what it does", op.title),
            ("signature", card_text(op).signature),
            ("formula", op.formula),
            ("family", op.family),
            ("difficulty", op.difficulty),
        ]
    )
    for profile, points in profiles.items():
        out.text("")
        out.heading(f"{len(points)} cells with {'a GPU' if profile == 'gpu' else 'no GPU'}")
        out.table(Table(("cell", "role", "inputs"), [(cell.name, cell.role, _inputs(cell)) for cell in points]))


def _matches(op: Op, search: str | None) -> bool:
    return search is None or search.lower() in f"{op.name} {op.title} {op.family}".lower()


def _row(op: Op) -> tuple[str, ...]:
    from referee.ops import signature

    return op.name, op.family, ", ".join(signature(op)), op.title


def _summary(op: Op) -> dict[str, Any]:
    from referee.ops import card_text, signature

    return {**asdict(op), "arguments": list(signature(op)), "signature": card_text(op).signature}


def _inputs(cell: Cell) -> str:
    return "  ".join(f"{spec.name}{list(spec.shape)} {spec.dtype}" for spec in cell.inputs)
