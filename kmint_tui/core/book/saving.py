"""Saves kernels of a book into a folder: each is judged here first, and once more as it will stand.

The words of a book are not used. The kernel joins the history as one from outside kmint, with the
verdict that the referee here makes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kmint_tui import paths
from kmint_tui.book.records import Book, Entry, Origin, Place
from kmint_tui.book.store import ORIGINS
from kmint_tui.core.book.planning import work_of
from kmint_tui.core.keeping import Keeper
from kmint_tui.core.referee import unfit
from kmint_tui.errors import EnvironmentUnfit, UsageError
from referee.asked_shape import ANY_ROWS, DTYPES, ShapeError, shapes_of

if TYPE_CHECKING:
    from kmint_tui.history.store import History
    from kmint_tui.save.saving import Saved
    from kmint_tui.service.work import Judging
    from referee.problem import TaskName


@dataclass(frozen=True)
class SavedFromBook:
    """The saved files, the entries that they hold, and those that are left out."""

    saved: Saved
    held: tuple[Entry, ...]
    left_out: tuple[Entry, ...]


def write_file(
    history: History,
    referee: Judging,
    drafts: Mapping[str, Sequence[str]],
    folder: Path,
    *,
    force: bool,
    tell: Callable[[str], None],
) -> tuple[Saved, frozenset[str]]:
    """Save drafts of one operation as one file; returns the drafts that it holds too.

    `drafts` has the shapes of each, none where the operation says its sizes itself. On a GPU the
    file chooses among them by shape. Without one nothing can be compared, and it holds the first
    draft alone.
    """
    from kmint_tui.core.referee import no_gpu_reason
    from kmint_tui.core.save import SaveAsked, save_by_shape, save_draft

    first = next(iter(drafts))
    shapes = tuple(dict.fromkeys(shape for some in drafts.values() for shape in some))
    if len(drafts) == 1 or not shapes or no_gpu_reason() is not None:
        return save_draft(history, referee, first, folder, force=force), frozenset({first})
    asked = SaveAsked(
        ids=tuple(drafts), shapes=shapes, dtype=None, outside=None, no_gpu=None, force=force
    )
    saved, rows = save_by_shape(history, referee, asked, folder, tell=tell)
    return saved, frozenset(row.draft for row in rows)


def entries_of(
    book: Book, op: str, shapes: Sequence[str] = (), origins: Mapping[Place, Origin] | None = None
) -> list[Entry]:
    """The entries of an operation: those built here first, and of each origin the largest ratio.

    Raises UsageError without an entry. `shapes` are texts such as `8192x4096` or `8192x4096:bf16`;
    `Mx4096` is each number of rows. An operation whose examples say its sizes has names of cases.
    """
    found = [entry for entry in book.entries if entry.op == op]
    if shapes:
        for shape in shapes:
            if not any(_is_at(shape, one) for one in found):
                _check_shape(shape)
        found = [one for one in found if any(_is_at(shape, one) for shape in shapes)]
    if not found:
        at = f" at {', '.join(shapes)}" if shapes else ""
        fix = f"`kmint book show {op}` lists its shapes; `kmint book build --ops {op}` adds some"
        raise UsageError(f"the book of {book.device} has no kernel of {op}{at}", fix=fix)
    of = origins or {}
    # A foreign ratio is a claim, so it never goes before one that was measured here.
    return sorted(
        found,
        key=lambda one: (ORIGINS.index(of.get(one.place, "own")), -one.figures.ratio, one.place),
    )


def _is_at(text: str, entry: Entry) -> bool:
    """Whether a text of `--shape` names the place of an entry."""
    size, _, dtype = text.strip().partition(":")
    rows, _, columns = size.partition("x")
    anywhere = rows == ANY_ROWS and entry.shape.partition("x")[2] == columns
    return (anywhere or entry.shape == size) and DTYPES.get(dtype, dtype) in ("", entry.dtype)


def _check_shape(text: str) -> None:
    """Raise UsageError for a text that no entry can be at."""
    try:
        shapes_of(text)
    except ShapeError as error:
        fix = "for example --shape 32768x1024, or --shape Mx1024 for each number of rows"
        raise UsageError(str(error), title="shape not usable", fix=fix) from None


def save_from_book(
    book: Book,
    entries: Sequence[Entry],
    referee: Judging,
    folder: Path,
    *,
    force: bool = False,
    tell: Callable[[str], None] = lambda step: None,
) -> SavedFromBook:
    """Judge the kernels of these entries, which are of one operation, and save those that passed.

    Raises UsageError where none passed, and the errors of `kmint save`.
    """
    from kmint_tui.history.reading import read_history

    ids: dict[str, str] = {}
    usable, reason = _usable(entries)
    for entry in usable:
        if entry.source_sha256 in ids:
            continue
        tell(f"judging the kernel of {entry.place}")
        task = work_of([one for one in usable if _same(one, entry)]).task
        kept = _kept(book, entry, task, referee)
        if isinstance(kept, _Rejected):
            reason = kept.reason
        else:
            ids[entry.source_sha256] = kept
    if not ids:
        fix = f"`kmint book build --ops {entries[0].op} --again` makes another"
        raise UsageError(f"none of its kernels can be saved here: {reason}", fix=fix)
    tell("judging the kernel as it will stand")
    shapes = {
        draft: work_of([one for one in usable if one.source_sha256 == source]).shapes
        for source, draft in ids.items()
    }
    with read_history(paths.history_file()) as history:
        saved, written = write_file(history, referee, shapes, folder, force=force, tell=tell)
    held = tuple(one for one in usable if ids.get(one.source_sha256) in written)
    return SavedFromBook(saved, held, tuple(one for one in entries if one not in held))


def save_here(
    book: Book, entries: Sequence[Entry], referee: Judging, folder: Path
) -> tuple[str, ...]:
    """Save these entries as `save_from_book` does; returns lines on the files, and on the kernels
    that they leave out.
    """
    from kmint_tui.core.save import told

    done = save_from_book(book, entries, referee, folder)
    left = left_out(done)
    return (*told(done.saved), *([left] if left else []))


def left_out(done: SavedFromBook) -> str:
    """A line on the kernels that the file leaves out; empty without any."""
    places = ", ".join(f"{one.shape} {one.dtype}" for one in done.left_out)
    return f"other kernels of the book are not in the file: {places}" if places else ""


def _usable(entries: Sequence[Entry]) -> tuple[list[Entry], str]:
    """The entries that this kmint and this GPU can judge, and why the last of the others is none."""
    usable, reason = list[Entry](), ""
    for entry in entries:
        try:
            work_of([entry])
        except (UsageError, EnvironmentUnfit) as error:
            reason = f"{entry.place}: {error}"
        else:
            usable.append(entry)
    return usable, reason


@dataclass(frozen=True)
class _Rejected:
    reason: str


def _kept(book: Book, entry: Entry, task: str | TaskName, referee: Judging) -> str | _Rejected:
    """The id of the kernel as a draft of the history with the verdict made here."""
    source = book.source(entry)
    verdict = referee.judge(source, task, level="full", strict=True)
    if verdict.verdict == "error":
        raise unfit(verdict)
    if not verdict.passed:
        return _Rejected(verdict.reason)
    keeper = Keeper(_session(entry, book.device), "full")
    draft = keeper.before(source, entry.op, task)
    keeper.after(draft, verdict)
    return draft


def _session(entry: Entry, device: str) -> str:
    """The name of the history's session. The saved file has it as author, so it says that the
    makers are the words of a book.
    """
    name = f"book of {device[:32]}, which names {entry.maker}"
    return name if len(name) <= 60 else f"{name[:59]}…"


def _same(one: Entry, other: Entry) -> bool:
    return one.source_sha256 == other.source_sha256


def here() -> str | None:
    """The name of the GPU here; None without one."""
    from kmint_tui.core.farm.devices import gpus

    with suppress(EnvironmentUnfit):
        return gpus()[0].name
    return None
