"""`kmint book`: the best verified kernels of every operation by shape, for a kind of device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmint_tui.cli.framework import Lazy, LazyGroup
from kmint_tui.cli.options import OPERATION, complete_operation
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import Table
from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from kmint_tui.book.records import Entry, Origin, Place

_WORK = "kmint_tui.cli.book_work"
VERBS = {
    "save": Lazy("kmint_tui.cli.book_save:save", "Save the kernel of an operation into a project."),
    "build": Lazy(f"{_WORK}:build", "Draft, tune and judge kernels, and keep the best."),
    "rejudge": Lazy(f"{_WORK}:rejudge", "Judge every kernel again, and compare the ratios."),
}

device_option = click.option(
    "--device",
    metavar="DEVICE",
    help="The kind of device, or a part of its name: H200.  [default: the GPU here, else the only book]",
)


@click.group(cls=LazyGroup, lazy=VERBS, invoke_without_command=True)
@click.pass_context
def book(context: click.Context) -> None:
    """The best verified kernels of every operation by shape and dtype, for one kind of device;
    alone it lists them.

    \b
      kmint book
      kmint book build --ops rmsnorm,softmax --budget 10
      kmint book save softmax --to kernels
      kmint book export h200.json

    Of several books, a kernel that was built here goes first, then one of an imported book, then
    one of the package. The words of a book prove nothing: a kernel is judged here before it is
    saved.
    """
    if context.invoked_subcommand is None:
        context.invoke(list_entries)


@book.command("ls", short_help="List the entries of a book.")
@device_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.book/1).")
@click.pass_obj
def list_entries(state: State, device: str | None = None, as_json: bool = False) -> None:
    """List the kernels of a book: the ratio to the fastest baseline, and the share of the copy
    floor.
    """
    from kmint_tui.book import store
    from kmint_tui.book.document import to_json
    from kmint_tui.book.records import Book
    from kmint_tui.core.book.reading import named_book

    origins: dict[Place, Origin] = {}
    if device is None and not store.devices():
        found = Book(device="", entries=(), sources={})
    else:
        found, origins = named_book(device)
    if as_json:
        state.out.document("kmint.book/1", to_json(found))
        return
    headers = ("op", "shape", "dtype", "verdict", "ratio", "us", "floor", "by", "from", "date")
    rows = [row(entry, origins) for entry in found.entries]
    state.out.table(Table(headers, rows, frozenset({"ratio", "us", "floor"})))
    state.err.hint(f"{len(rows)} kernels for {found.device}" if rows else store.EMPTY)


@book.command("show", short_help="Show the kernels of an operation.")
@click.argument(
    "op",
    metavar="OP",
    type=OPERATION,
    shell_complete=complete_operation,
    help="An operation; `kmint book ls` lists those of the book.",
)
@click.option(
    "--shape",
    "shapes",
    metavar="RxC",
    multiple=True,
    help="This shape alone; Mx4096 is each number of rows.",
)
@click.option("--source", is_flag=True, help="Print the text of the fastest kernel alone.")
@device_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.book/1).")
@click.pass_obj
def show(
    state: State,
    op: str,
    shapes: tuple[str, ...],
    source: bool,
    device: str | None,
    as_json: bool,
) -> None:
    """Show the kernels of an operation: figures, baselines, makers, versions and digests."""
    from dataclasses import replace

    from kmint_tui.book.document import to_json
    from kmint_tui.core.book.reading import facts, named_book
    from kmint_tui.core.book.saving import entries_of

    found, origins = named_book(device)
    entries = entries_of(found, op, shapes, origins)
    if as_json:
        state.out.document("kmint.book/1", to_json(replace(found, entries=tuple(entries))))
        return
    if source:
        state.out.content(found.source(entries[0]))
        return
    for entry in entries:
        state.out.heading(f"{entry.place} on {found.device}")
        state.out.pairs(facts(entry, origins))
    state.err.hint(f"save it: kmint book save {op} --to DIR")


@book.command("export", short_help="Write a book to a file.")
@click.argument(
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write: h200.json.",
)
@device_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.book.export/1).")
@click.pass_obj
def export(state: State, file: Path, device: str | None, as_json: bool) -> None:
    """Write the book of a device to a file, which `kmint book import` takes on another machine."""
    from kmint_tui.book import store
    from kmint_tui.core.book.reading import named_book

    found, _ = named_book(device)
    if not found.entries:
        raise UsageError(f"the book of {found.device} is empty", fix=store.EMPTY)
    store.write(found, file)
    if as_json:
        content = {"device": found.device, "entries": len(found.entries), "file": str(file)}
        state.out.document("kmint.book.export/1", content)
    else:
        state.out.text(f"{file}: {len(found.entries)} kernels for {found.device}")


@book.command("import", short_help="Take the book in a file.")
@click.argument(
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file of `kmint book export`.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.book.import/1).")
@click.pass_obj
def take(state: State, file: Path, as_json: bool) -> None:
    """Take the book in a file. Kernels that were built here stay; earlier imports are replaced.

    Its kernels are text of others: kmint judges each before it is saved, in the sandbox.
    """
    from kmint_tui.book import store

    found = store.foreign(file)
    store.take(found)
    if as_json:
        content = {"device": found.device, "entries": len(found.entries)}
        state.out.document("kmint.book.import/1", content)
    else:
        state.out.text(f"{len(found.entries)} kernels for {found.device}")


def row(entry: Entry, origins: dict[Place, Origin]) -> tuple[str, ...]:
    """One line of the list."""
    from kmint_tui.core.book.reading import share

    figures = entry.figures
    return (
        *(entry.op, entry.shape, entry.dtype, figures.verdict),
        *(f"{figures.ratio:.3f}x", f"{figures.us:.1f}", share(entry)),
        *(entry.maker, origins[entry.place], entry.date[:10]),
    )
