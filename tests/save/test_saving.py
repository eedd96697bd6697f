"""Saved files: their content, whole writes, and edits that are never lost."""

from __future__ import annotations

import ast
import json
import random
import resource
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from kmint_tui.errors import StorageError, UsageError
from kmint_tui.history.records import Draft, Session
from kmint_tui.save.host_code import NotSaveable
from kmint_tui.save.receipt import BadReceipt, is_whole, load, sha256
from kmint_tui.save.saving import Saved, save
from kmint_tui.save.single_file import provenance
from kmint_tui.save.support import support
from referee.ops import Op, cells, get
from referee.ops.fresh_widths import wide_cells
from referee.verdict import CellResult, Verdict
from tests.evil import EVIL, STEERS
from tests.save.test_host_code import GOOD

SESSION = Session(
    id=12,
    started="2026-01-01T00:00:00+00:00",
    finished=None,
    state="done",
    op="softmax",
    model='odd"""\\x00 name',
    model_file="m.gguf",
    model_sha256="ab" * 32,
    system="s",
    user="u",
    seed=7,
    wanted=8,
    settings={},
    environment={"torch": "2.11", "triton": None},
)
BUILTIN_NODES = {
    ast.Expr, ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.ClassDef, ast.FunctionDef,
}  # fmt: skip


def verdict(outcome: str = "correct", failed: str = "") -> Verdict:
    """A verdict at every cell of the CPU, `failed` a part of the names of cells that did not pass."""
    results = tuple(
        CellResult(cell.name, cell.role, "fail" if failed and failed in cell.name else "pass")
        for cell in cells(get("softmax"), profile="cpu")
    )
    return Verdict("softmax", outcome, "done", "because", None, "interpret", cells=results)  # type: ignore[arg-type]


def draft(
    source: str = GOOD, outcome: str | None = "correct", duplicate_of: int | None = None
) -> Draft:
    document = verdict().to_json() if outcome else None
    return Draft(
        session=12,
        number=3,
        source=source,
        source_sha256="cd" * 32,
        seed=11,
        temperature=0.7,
        tokens=100,
        seconds=1.0,
        finish="stop",
        duplicate_of=duplicate_of,
        outcome=outcome,
        ratio=None,
        verdict=document,
    )


def saved(
    folder: Path, source: str = GOOD, *, op: Op | None = None, force: bool = False, failed: str = ""
) -> Saved:
    return save(
        SESSION,
        draft(source),
        op or get("softmax"),
        folder,
        judge=lambda text: verdict(failed=failed),
        force=force,
    )


def test_three_files_that_belong_together(tmp_path: Path) -> None:
    files = saved(tmp_path / "new" / "folder").files
    assert [path.name for path in files] == [
        "softmax.py",
        "test_softmax.py",
        "softmax.receipt.json",
    ]
    receipt = json.loads(files[2].read_text(encoding="utf-8"))
    assert (receipt["schema"], receipt["id"], receipt["verdict"]["verdict"]) == (
        "kmint.receipt/1",
        "12.3",
        "correct",
    )
    assert receipt["files"] == {
        path.name: sha256(path.read_text(encoding="utf-8")) for path in files[:2]
    }
    assert {path.name for path in files} == {path.name for path in files[0].parent.iterdir()}


def test_the_file_says_where_it_is_from(tmp_path: Path) -> None:
    text = saved(tmp_path).files[0].read_text(encoding="utf-8")
    block = text.split("# /// kmint\n")[1].split("# ///\n")[0]
    origin = tomllib.loads("\n".join(line.removeprefix("# ") for line in block.splitlines()))
    assert (origin["id"], origin["seed"], origin["model"], origin["versions"]) == (
        "12.3",
        7,
        SESSION.model,
        {"torch": "2.11"},
    )


def test_the_file_imports_torch_and_triton_only(tmp_path: Path) -> None:
    saved(tmp_path)
    tree = ast.parse((tmp_path / "softmax.py").read_text(encoding="utf-8"))
    assert {type(node) for node in tree.body} == BUILTIN_NODES
    modules = {
        alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names
    }
    modules |= {node.module or "" for node in tree.body if isinstance(node, ast.ImportFrom)}
    packages = {module.partition(".")[0] for module in modules}
    assert packages - sys.stdlib_module_names == {"torch", "triton"}


@pytest.mark.parametrize("formula", ['x"""\nimport os', "back\\slash \\N{DEL}", "line\nbreak", '"'])
def test_no_formula_escapes_the_docstring(tmp_path: Path, formula: str) -> None:
    saved(tmp_path, op=replace(get("softmax"), title=formula, formula=formula))
    tree = ast.parse((tmp_path / "softmax.py").read_text(encoding="utf-8"))
    assert {type(node) for node in tree.body} == BUILTIN_NODES


def test_no_saved_file_steers_a_terminal(tmp_path: Path) -> None:
    """Somebody will look at the file with `cat`, and its provenance stays readable."""
    session = replace(
        SESSION, model=EVIL, model_file=EVIL, settings={EVIL: EVIL}, environment={f'"{EVIL}': EVIL}
    )
    files = save(session, draft(), get("softmax"), tmp_path, judge=lambda text: verdict()).files
    for file in files:
        assert not STEERS.search(file.read_text(encoding="utf-8")), file.name
    origin = provenance(files[0].read_text(encoding="utf-8"))
    assert origin is not None and (origin["model"], origin["versions"]) == (
        EVIL,
        {f'"{EVIL}': EVIL},
    )
    receipt = load(files[2].read_text(encoding="utf-8"))
    assert is_whole(receipt) and receipt["model"]["id"] == EVIL


def test_a_lost_badge_becomes_a_check(tmp_path: Path) -> None:
    saved(tmp_path / "with")
    saved(tmp_path / "without", failed="padded")
    with_badge, without = (
        (tmp_path / name / "softmax.py").read_text(encoding="utf-8") for name in ("with", "without")
    )
    assert "_row_gap" in with_badge
    assert "_row_gap" not in without and "x must be contiguous" in without


def test_a_badge_is_lost_at_a_cell_that_was_drawn_too() -> None:
    op = get("qknorm_rope")
    passed = [{"name": cell.name, "status": "pass"} for cell in cells(op, profile="cpu")]
    with_all = support(op, [{"cells": passed}])
    assert (with_all.heads, with_all.padded, with_all.nonfinite) == ((64, 80, 128, 256), True, True)
    drawn = ("bf16-300x80-head80-x1", "bf16-300x64-padded-x1", "f16-300x64-nonfinite-x1")
    lost = [{"name": name, "status": "fail"} for name in drawn]
    without = support(op, [{"cells": passed}, {"cells": lost}])
    assert (without.heads, without.padded, without.nonfinite) == ((64, 128, 256), False, False)


def test_long_rows_of_a_gpu_end_at_the_first_that_did_not_pass() -> None:
    """The widths of requested shapes count as well; a replay without long rows stops at 8,448."""
    op = get("softmax")
    usual = [{"name": cell.name, "status": "pass"} for cell in cells(op, profile="gpu")]
    wide = [{"name": cell.name, "status": "pass"} for cell in wide_cells(op)]
    assert support(op, [{"cells": usual}]).max_columns == 8448
    assert support(op, [{"cells": [*usual, *wide]}]).max_columns == 262144
    for status in ({"status": "fail"}, {"status": "skipped", "guard": "timeout"}):
        some = [{**one, **(status if "128256" in str(one["name"]) else {})} for one in wide]
        assert support(op, [{"cells": [*usual, *some]}]).max_columns == 50257
    asked = [{"name": "bf16-2048x16384-asked-x1", "status": "pass"}]
    assert support(op, [{"cells": [*usual, *asked]}]).max_columns == 16384
    longer = [{"name": "bf16-64x65536-asked-x1", "status": "pass"}]
    wrong = [{**one, "status": "fail"} for one in wide if "33001" in str(one["name"])]
    assert support(op, [{"cells": [*usual, *longer, *wrong]}]).max_columns < 33001


def test_a_kernel_wrong_on_offset_views_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(NotSaveable, match="offset"):
        saved(tmp_path, failed="offset")


def test_time_that_ran_out_is_not_called_wrong(tmp_path: Path) -> None:
    """A kernel is not saved without its offsets, and any other capability is said not to be judged."""
    op, marks = get("reglu"), ("-offset-", "-halves-", "-nonfinite-")
    cases = [{"name": cell.name, "status": "pass"} for cell in cells(op, profile="cpu")]
    assert support(op, [{"cells": cases}]).padded
    late = {"status": "skipped", "guard": "timeout"}
    for mark in marks:
        assert any(mark in case["name"] for case in cases), mark
        slow = [{**case, **(late if mark in case["name"] else {})} for case in cases]
        if mark == "-offset-":
            with pytest.raises(NotSaveable, match="were not judged: time ran out"):
                support(op, [{"cells": slow}])
        else:
            able = support(op, [{"cells": slow}])
            assert len(able.unjudged) == 1 and not (able.padded and able.nonfinite), mark
        assert support(op, [{"cells": slow}, {"cells": cases}]).unjudged == ()


def test_a_receipt_that_was_touched_is_known(tmp_path: Path) -> None:
    receipt = saved(tmp_path).files[2].read_text(encoding="utf-8")
    assert is_whole(load(receipt))
    assert not is_whole(
        load(
            receipt.replace('"seed": 11', '"seed": 12').replace(
                '"draft_seed": 11', '"draft_seed": 12'
            )
        )
    )
    for text in (
        "",
        "[]",
        "{}",
        receipt.replace("receipt/1", "receipt/2"),
        receipt.replace('"files"', '"filed"'),
    ):
        with pytest.raises(BadReceipt):
            load(text)


def test_names_that_collide_with_the_file_are_changed(tmp_path: Path) -> None:
    source = GOOD.replace("_kernel", "softmax").replace(
        "def run(x):", "def reference(x):\n    return x\n\ndef run(x):\n    x = reference(x)"
    )
    text = saved(tmp_path, source).files[0].read_text(encoding="utf-8")
    names = [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert len(names) == len(set(names)) and {
        "softmax",
        "reference",
        "_softmax",
        "_reference",
        "_run",
    } <= set(names)


@pytest.mark.parametrize("outcome", ["rejected", "error", None])
def test_only_what_passed_is_saved(tmp_path: Path, outcome: str | None) -> None:
    with pytest.raises(UsageError, match="only kernels that passed"):
        save(
            SESSION, draft(outcome=outcome), get("softmax"), tmp_path, judge=lambda text: verdict()
        )
    with pytest.raises(UsageError, match="12.1"):
        save(
            SESSION,
            draft(outcome=None, duplicate_of=1),
            get("softmax"),
            tmp_path,
            judge=lambda text: verdict(),
        )


def test_what_does_not_pass_in_its_saved_form_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(NotSaveable, match="because"):
        save(SESSION, draft(), get("softmax"), tmp_path, judge=lambda text: verdict("rejected"))
    assert list(tmp_path.iterdir()) == []


def test_saving_again_replaces_our_own_files(tmp_path: Path) -> None:
    saved(tmp_path)
    saved(tmp_path, GOOD.replace(">= 4096", ">= 2048"))
    assert ">= 2048" in (tmp_path / "softmax.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["softmax.py", "test_softmax.py", "softmax.receipt.json"])
def test_an_edited_file_is_not_overwritten_unless_asked(tmp_path: Path, name: str) -> None:
    saved(tmp_path)
    file = tmp_path / name
    file.write_text("# mine\n", encoding="utf-8")
    with pytest.raises(UsageError, match="edited"):
        saved(tmp_path, GOOD.replace(">= 4096", ">= 2048"))
    assert file.read_text(encoding="utf-8") == "# mine\n"
    saved(tmp_path, force=True)
    assert file.read_text(encoding="utf-8") != "# mine\n"


def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(StorageError):
        saved(tmp_path / "file" / "folder")


def test_a_full_disk_leaves_the_old_files_whole(tmp_path: Path) -> None:
    files = saved(tmp_path).files
    before = {path: path.read_bytes() for path in files}
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limit[1]))
    try:
        with pytest.raises(StorageError, match="file size limit"):
            saved(tmp_path, GOOD.replace(">= 4096", ">= 2048"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


WRITER = """
import sys
from pathlib import Path
from kmint_tui.save import writer
print("ready", flush=True)
for number in range(10**9):
    text = f"# {number}\\n" * 20000
    writer.write(Path(sys.argv[1]), {"a.py": text, "a.receipt.json": text}, "a.receipt.json", force=True)
    print(number, flush=True)
"""


def test_a_kill_leaves_whole_files(tmp_path: Path) -> None:
    moments = random.Random(8)
    for _ in range(20):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        assert process.stdout is not None
        for _ in range(moments.randrange(2, 40)):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        for name in ("a.py", "a.receipt.json"):
            lines = (tmp_path / name).read_text(encoding="utf-8").splitlines()
            assert len(lines) == 20000
            assert len(set(lines)) == 1
