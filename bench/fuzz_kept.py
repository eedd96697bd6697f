"""Readers of what kmint itself writes: its settings, its history, saved kernels, grids, caches."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bench.fuzz_reader import Read, through

if TYPE_CHECKING:
    from referee.verdict import Verdict


def history_import(home: Path) -> tuple[Read, list[bytes]]:
    """`kmint history import`, and then whatever came in is listed, shown and exported."""
    from kmint_tui import paths
    from kmint_tui.history.store import History
    from kmint_tui.history.transfer import export, remove, take_in
    from tests.tui.filled import fill

    fill()
    seeds = [
        json.dumps(document).encode()
        for document in export(paths.history_file())
        if isinstance(document, dict)
    ]
    fresh = home / "fresh.db"

    def read(data: bytes) -> None:
        if not take_in(fresh, io.BytesIO(data)).sessions:
            return
        with History(fresh) as history:
            summaries = history.summaries()
            for one in summaries:
                f"{one.id} {one.ratio or 0:.2f} {one.started[:19]}"
                history.session(one.id)
                history.drafts(one.id)
            taken = [document for document in export(fresh)]
            assert len(taken) == len(summaries)
        from kmint_tui.history.records import Reference

        remove(fresh, *(Reference(one.id, None) for one in summaries))

    return read, seeds


def settings(home: Path) -> tuple[Read, list[bytes]]:
    """`config.toml`."""
    from kmint_tui import config

    file = home / "config.toml"
    seeds = [
        b'[mint]\nmodel = "embedded"\ndrafts = 8\ntemperature = 0.7\ntop_p = 0.95\n'
        b'max_tokens = 900\ntarget = "sm_90"\n'
        b"[network]\noffline = true\n"
    ]
    return through(file, lambda: config.load(file)), seeds


def interface(home: Path) -> tuple[Read, list[bytes]]:
    """`tui.toml`."""
    from kmint_tui.screens import preferences

    file = preferences.file()
    file.parent.mkdir(parents=True)
    return through(file, preferences.load), [
        b'theme = "kmint-light"\ndensity = "compact"\n[keys]\n"mint.start" = "f6"\n'
    ]


def interface_state(home: Path) -> tuple[Read, list[bytes]]:
    """The interface's saved state."""
    from kmint_tui import paths
    from kmint_tui.screens import preferences

    file = paths.private_dir(paths.state_dir()) / "tui-state.json"
    return through(file, preferences.load), [b'{"theme": "kmint-light", "density": "compact"}']


def receipt(home: Path) -> tuple[Read, list[bytes]]:
    """`kmint verify` on a saved kernel with this receipt."""
    folder, verdict = _saved(home)
    from kmint_tui.save.judged_part import BEGIN, END
    from kmint_tui.save.verifying import saved_kernels, verify

    file, kernel = folder / "softmax.receipt.json", folder / "softmax.py"
    # The kernel itself is another reader's business, and takes most of the time.
    kernel.write_text(f"{BEGIN}\n_run = 1\n{END}\n")

    def check() -> None:
        (found,) = saved_kernels(folder)
        f"{verify(found, lambda candidate, op: verdict).problems}"

    return through(file, check), [file.read_bytes()]


def saved_kernel(home: Path) -> tuple[Read, list[bytes]]:
    """`kmint verify` on this saved kernel: its provenance block and its judged part."""
    folder, verdict = _saved(home)
    from kmint_tui.save.verifying import own_reference, verify

    file = folder / "softmax.py"

    def check() -> None:
        own_reference(file)
        f"{verify(file, lambda candidate, op: verdict).problems}"

    return through(file, check), [file.read_bytes()]


def book(home: Path) -> tuple[Read, list[bytes]]:
    """`kmint book import`; every entry of the book is then shown, and made ready for the referee."""
    from kmint_tui.book import store
    from kmint_tui.book.document import text_of
    from kmint_tui.cli.book import row
    from kmint_tui.core.book.planning import work_of
    from kmint_tui.core.book.reading import facts
    from kmint_tui.errors import UsageError
    from tests.book import examples

    file = home / "book.json"

    def read() -> None:
        store.take(store.foreign(file))
        for device in store.devices():
            found, origins = store.load(device)
            for entry in found.entries:
                row(entry, origins)
                facts(entry, origins)
                with suppress(UsageError):
                    work_of([entry])

    whole = examples.book(examples.entry(), examples.entry(shape="64x4096", low=None, high=None))
    return through(file, read), [text_of(whole).encode()]


def grid_report(home: Path) -> tuple[Read, list[bytes]]:
    """The report of a grid that the interface opens."""
    from kmint_tui.core import grid_report
    from tests.tui.filled import grid_document

    file = home / "grid.json"
    return through(file, lambda: grid_report.load(file).title), [
        json.dumps(grid_document()).encode()
    ]


def grid_record(home: Path) -> tuple[Read, list[bytes]]:
    """The record from which `kmint grid` goes on."""
    from dataclasses import asdict

    from referee.grid import SCHEMA, read_record, summarise
    from tests.tui.filled import grid_points

    file, identity = home / "grid.jsonl", {"op": "softmax"}
    lines = [{"schema": SCHEMA, "identity": identity}, *map(asdict, grid_points())]
    whole = b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"
    return through(file, lambda: summarise(read_record(file, identity))), [whole]


def compiled_kernel(home: Path) -> tuple[Read, list[bytes]]:
    """A kernel in the compile cache, which a sandboxed compiler made."""
    from referee.compiling.binaries import Binary, CompileCache

    cache = CompileCache(home / "cache")
    paths = ((0,), (1, 0), (2,))
    cache.store(
        Binary(
            kernel="kernel",
            key="key",
            image=b"image",
            name="kernel",
            shared=0,
            num_warps=4,
            registers=20,
            spills=0,
            parameters=("*fp32", "i32"),
            paths=paths[:2],
        )
    )
    (file,) = (home / "cache").glob("*.json")
    return through(file, lambda: cache.load("key", "kernel")), [file.read_bytes()]


def interpreter_answer(home: Path) -> tuple[Read, list[bytes]]:
    """The sandboxed interpreter's report on its runs."""
    from referee.interpreter.interpret import _answer
    from referee.sandbox.zygote_job import Outcome

    seeds = [b"[null, null]", b'[null, {"kind": "out_of_bounds", "message": "x"}]']
    return lambda data: _answer(Outcome("ok", data, "", 0.1), 2, 2, 1.0), seeds


def recorded_call(home: Path) -> tuple[Read, list[bytes]]:
    """The call in a file that `--input @FILE` names."""
    from kmint_tui.core.recorded_call import record_of, recorded_text
    from referee.reference.grammar import parse_inputs

    file = home / "call.json"
    inputs = parse_inputs(["x=bf16[B,4096] w=f32[4096] eps=1e-6"])[0]
    document = json.dumps(record_of("layers:norm", inputs)).encode()
    return through(file, lambda: recorded_text(file)), [document]


def _saved(home: Path) -> tuple[Path, Verdict]:
    """A folder with one saved kernel, and the verdict of a referee that passes everything."""
    from tests.save.test_saving import saved, verdict

    folder = home / "saved"
    saved(folder)
    (folder / "test_softmax.py").unlink()
    return folder, verdict()
