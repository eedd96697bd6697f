"""`--shape` and `--dtype` of `save`, `tune`, `gate` and `crowns claim`, and the use of their result."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from kmint_tui import paths
from kmint_tui.cli.gate import together
from kmint_tui.core.gating import claims
from kmint_tui.crowns.records import NoClaim, claim, shape_of
from kmint_tui.errors import UsageError
from kmint_tui.history.records import NewDraft, NewSession
from kmint_tui.history.store import History
from kmint_tui.save.judged_part import NoJudgedPart
from referee.asked_shape import ROW_COUNTS
from referee.ops import cells, get
from referee.verdict import CellResult, Verdict
from tests.cli.runner import kmint
from tests.cli.test_bad_input import refused
from tests.save.conftest import draft, session, source
from tests.save.several import save_several

pytestmark = pytest.mark.usefixtures("warm")

WIDE, TALL = "8192x4096:bfloat16", "32768x1024:bfloat16"
WRONG = [
    (["--shape", "0x5"], "is no shape"),
    (["--shape", "axb"], "is no shape"),
    (["--shape", "4x4x4"], "is no shape"),
    (["--shape", "Mx0"], "'Mx0' is no shape"),
    (["--shape", "MxN"], "'MxN' is no shape"),
    (["--shape", "xM"], "'xM' is no shape"),
    (["--shape", "64x64", "--shape", "64x64x64"], "is no shape"),
    (["--shape", "8x8:fp8"], "fp8 is none of"),
    (["--dtype", "int3"], "int3 is none of"),
    (["--shape", "999999x999999"], "GiB in one tensor"),
]


def timing(shape: str, ratio: float, decision: str = "win") -> dict[str, Any]:
    sizes = shape.partition(":")[0]
    return {
        "cell": f"bf16-{sizes}-asked-x1",
        "bar": "compile",
        "decision": decision,
        "ratio": {"ratio": ratio, "low": ratio - 0.01, "high": ratio + 0.01},
        "device": {"candidate": {"median": 40.0}},
    }


def won(*shapes: dict[str, Any]) -> Verdict:
    """A verdict with times at these shapes."""
    names = [CellResult(one.name, one.role, "pass") for one in cells(get("softmax"), profile="cpu")]
    return Verdict(
        "softmax", "win", "done", "", None, "replay", cells=tuple(names),
        timing={**shapes[0], "shapes": list(shapes), "geometric_mean": 1.2},
        environment={"device": "NVIDIA H200", "torch": "2.11", "triton": "3.6"},
    )  # fmt: skip


def remember(op: str, *drafts: tuple[str, Verdict]) -> None:
    """A session with these drafts in the history."""
    with History(paths.history_file()) as history:
        number = history.begin(
            NewSession(
                op=op, model="m", model_file="", model_sha256="", system="", user="", seed=0,
                wanted=1, settings={}, environment={},
            )
        )  # fmt: skip
        for at, (text, verdict) in enumerate(drafts):
            new = NewDraft(
                number=at,
                source=text,
                seed=1,
                temperature=0.0,
                tokens=1,
                seconds=0.0,
                finish="stop",
            )
            history.add_draft(number, new)
            history.set_verdict(number, at, verdict.to_json(), ratio=1.2)
        history.finish(number, "done")


@pytest.fixture
def two() -> None:
    remember(
        "softmax",
        (source("online_softmax"), won(timing(WIDE, 1.3), timing(TALL, 1.1))),
        (source("rows_softmax"), won(timing(WIDE, 1.2), timing(TALL, 1.4))),
    )


COMMANDS = {
    "tune": ["tune", "1.0"],
    "save": ["save", "1.0", "1.1", "--to", "out"],
    "gate": ["gate", "1.0"],
    "claim": ["crowns", "claim", "1.0"],
}


@pytest.mark.sweep
@pytest.mark.parametrize(("options", "words"), WRONG)
@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_shapes_are_told_first(
    two: None, tmp_path: Path, command: str, options: list[str], words: str
) -> None:
    given = [str(tmp_path / one) if one == "out" else one for one in COMMANDS[command]]
    refused(kmint(*given, *options), 2, words, "--shape 32768x1024")
    assert not list(tmp_path.iterdir())
    assert [one["id"] for one in kmint("history", "--json").document["sessions"]] == [1]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dtype_that_the_operation_lacks_is_told(tmp_path: Path, command: str) -> None:
    verdict = replace(won(timing(WIDE, 1.3)), op="dequant_int8")
    remember("dequant_int8", *[(source("row_dequant_int8"), verdict)] * 2)
    given = [str(tmp_path / one) if one == "out" else one for one in COMMANDS[command]]
    refused(kmint(*given, "--shape", "64x64:bf16"), 2, "float16 alone, and not bfloat16")


def test_too_little_memory_is_told(monkeypatch: pytest.MonkeyPatch, two: None) -> None:
    from kmint_tui.core import shape
    from kmint_tui.core.tune import TuneAsked, start_of
    from kmint_tui.history.tuned import TunedSessions

    monkeypatch.setattr(shape, "_memory", lambda: 1 << 30)
    with TunedSessions(paths.history_file()) as history, pytest.raises(UsageError) as told:
        start_of(history, TuneAsked(wanted="1", shapes=("65536x8192:bf16",)))
    assert "takes 16.0 GiB of GPU memory, and this GPU has 1.0" in told.value.message


def test_any_rows_are_those_that_fit(monkeypatch: pytest.MonkeyPatch, two: None) -> None:
    from kmint_tui.core import shape
    from kmint_tui.core.tune import TuneAsked, start_of
    from kmint_tui.history.tuned import TunedSessions

    asked = TuneAsked(wanted="1", shapes=("Mx8192:bf16", "64x8192:bf16"))
    with TunedSessions(paths.history_file()) as history:
        for memory, rows in ((None, [1, 64, 2048, 32768]), (1 << 30, [1, 64, 2048])):
            monkeypatch.setattr(shape, "_memory", lambda memory=memory: memory)
            assert [one.rows for one in start_of(history, asked).shapes] == rows
        monkeypatch.setattr(shape, "_memory", lambda: 1 << 10)
        with pytest.raises(UsageError, match="a verdict at 1x8192:bfloat16 takes"):
            start_of(history, asked)


def test_any_rows_become_the_table_of_a_saved_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kernel is the fastest for few rows, another one for many: the table has each row count."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    names = [f"{rows}x4096:bfloat16" for rows in ROW_COUNTS]
    ratios = ((1.5, 1.4, 1.0, 1.0), (1.0, 1.0, 1.2, 1.3))
    verdicts = [
        won(*(timing(name, ratio) for name, ratio in zip(names, some, strict=True)))
        for some in ratios
    ]
    texts = (source("online_softmax"), source("rows_softmax"))
    remember("softmax", *zip(texts, verdicts, strict=True))
    done = kmint("save", "1.0", "1.1", "--shape", "Mx4096:bf16", "--to", str(tmp_path), "--json")
    assert done.code == 0, done.err
    found = [(one["rows"], one["draft"]) for one in done.document["shapes"]]
    assert found == list(zip(ROW_COUNTS, ("1.0", "1.0", "1.1", "1.1"), strict=True))
    text = (tmp_path / "softmax.py").read_text(encoding="utf-8")
    assert [
        line.split("(")[1].split(",")[0] for line in text.splitlines() if "    _Shape(" in line
    ] == [str(rows) for rows in ROW_COUNTS]


def test_several_crowns_are_claimed_by_one_command(two: None) -> None:
    """One command claims the crown of each shape, or none where the draft did not win at one."""
    asked = ["--shape", WIDE, "--shape", TALL]
    done = kmint("crowns", "claim", "1.0", *asked)
    assert done.code == 0, done.err
    assert [line.partition(" on ")[0] for line in done.out.splitlines()] == [
        f"the crown for softmax at {shape}" for shape in (WIDE, TALL)
    ]
    again = kmint("crowns", "claim", "1.0", *asked, "--json")
    assert [one["outcome"] for one in again.document["shapes"]] == ["held", "held"]
    assert again.document["outcome"] == "held"
    remember(
        "rmsnorm",
        (
            source("row_rmsnorm"),
            replace(won(timing(WIDE, 1.3), timing(TALL, 0.9, "loss")), op="rmsnorm"),
        ),
    )
    refused(kmint("crowns", "claim", "2.0", *asked), 2, "draft 2.0 is loss")
    assert {one["crown"]["op"] for one in kmint("crowns", "--json").document["reigns"]} == {
        "softmax"
    }


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["tune", "1.0", "--budget", "0"], 2, ["--budget"]),
        (["tune", "1.0", "--budget", "nan"], 2, ["--budget"]),
        (["tune", "1.7"], 2, ["no draft 1.7"]),
        (["tune", "7"], 2, ["no session 7"]),
        (["tune", "x"], 2, ["'x' is not an id"]),
        (["tune", "1.0", "--outside", "reference"], 2, ["--outside", "--save DIR"]),
        (["tune", "1.0", "--gpus", "none"], 2, ["--gpus"]),
        (["tune", "1.0", "--shape", "64x64"], 3, ["times variants", "on a machine with a GPU"]),
        (["gate", "1.0", "--shape", "64x64"], 3, ["a gate is measured on a GPU"]),
        (["save", "1.0", "1", "--to", "x"], 2, ["1 is a session"]),
        (["save", "1.0", "1.1", "--shape", "64x64", "--to", "x"], 3, ["was not timed at 64x64"]),
        (["save", "1.0", "--outside", "never", "--to", "x"], 2, ["--outside"]),
        (["crowns", "claim", "1.0", "--shape", "Mx4096:bf16"], 2, ["was not timed at 1x4096"]),
        (["crowns", "claim", "1.0", "--shape", "64x64"], 2, ["was not timed at 64x64:float16"]),
    ],
)
def test_a_request_that_cannot_be_met_is_told(
    two: None, arguments: list[str], code: int, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    refused(kmint(*arguments), code, *words)


def test_drafts_of_two_operations_are_not_saved_together(two: None, tmp_path: Path) -> None:
    remember("rmsnorm", (source("row_rmsnorm"), replace(won(timing(WIDE, 1.1)), op="rmsnorm")))
    done = kmint("save", "1.0", "2.0", "--to", str(tmp_path / "x"))
    refused(done, 2, "draft 1.0 is for softmax, and 2.0 for rmsnorm", "one by one")


def test_times_of_the_history_make_a_file(
    two: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = kmint("save", "1.0", "1.1", "--to", str(tmp_path), "--json")
    assert done.code == 0, done.err
    found = done.document
    assert (found["id"], found["ids"], found["outside"]) == ("1.0", ["1.0", "1.1"], "nearest")
    assert [(one["columns"], one["draft"], one["ratio"]) for one in found["shapes"]] == [
        (4096, "1.0", 1.3),
        (1024, "1.1", 1.4),
    ]
    text = (tmp_path / "softmax.py").read_text(encoding="utf-8")
    assert "_Shape(32768, 1024, torch.bfloat16, _run_2, 1.400)" in text
    assert kmint("verify", str(tmp_path), "--digests").code == 0
    judged = kmint("verify", str(tmp_path / "softmax.py"))
    assert judged.code == 0, judged.out + judged.err
    assert "_run_1" in judged.out and "_run_2" in judged.out
    kernel = kmint("judge", str(tmp_path / "softmax.py"))
    assert kernel.code in (1, 2)


def test_one_kernel_is_saved_as_before(two: None, tmp_path: Path) -> None:
    usual = kmint("save", "1.0", "--to", str(tmp_path / "usual"))
    asked = kmint("save", "1.0", "--shape", WIDE, "--to", str(tmp_path / "asked"))
    assert (usual.code, asked.code) == (0, 0), usual.err + asked.err
    texts = [(tmp_path / one / "softmax.py").read_text() for one in ("usual", "asked")]
    parts = [one.partition("# ---- judged")[2].partition("# /// kmint")[0] for one in texts]
    assert parts[0] == parts[1] and "SHAPES" not in parts[0]


def test_a_gate_takes_the_kernel_of_the_shape(tmp_path: Path) -> None:
    save_several(("online_softmax", "rows_softmax"), ((WIDE, 1), (TALL, 2)), tmp_path)
    file = str(tmp_path / "softmax.py")
    (wide, one), (tall, two) = claims(file, None, None, (WIDE, TALL), None)
    assert (wide, tall) == (WIDE, TALL)
    assert "BLOCK=512" in one.source and "ROWS=2" in two.source
    assert (one.task.shapes, two.task.shapes) == ((WIDE,), (TALL,))
    with pytest.raises(NoJudgedPart, match="chooses among 2 kernels"):
        claims(file, None, None, (), None)
    other = tmp_path / "reference"
    save_several(("online_softmax",), ((WIDE, 1),), other, outside="reference")
    with pytest.raises(UsageError, match="takes PyTorch at 64x64:float32"):
        claims(str(other / "softmax.py"), None, None, ("64x64",), "fp32")


def test_a_gate_knows_the_claim_at_a_shape(two: None) -> None:
    ((_, one), (_, other)) = claims("1.1", None, None, (TALL, "64x64:fp32"), None)
    assert one.claim is not None and (one.claim.ratio, one.claim.outcome) == (1.4, "win")
    assert other.claim is None


def test_several_claims_survive_together_only() -> None:
    one, two = {"survives": True, "stable": True}, {"survives": False, "stable": False}
    assert together([one]) == one
    assert together([one, two])["survives"] is False and len(together([one, two])["shapes"]) == 2


def test_each_shape_has_a_crown_of_its_own() -> None:
    verdict = won(timing(WIDE, 1.3), timing(TALL, 0.9, "loss"))
    made = draft(source("online_softmax"), verdict)
    found = claim(session("softmax"), made, WIDE)
    assert (found.crown.cell, found.ratio) == ("bf16-8192x4096-asked-x1", 1.3)
    assert shape_of(found.crown.cell) == WIDE and shape_of("f16-8192x4096-normal-x1") is None
    with pytest.raises(NoClaim, match="is loss"):
        claim(session("softmax"), made, TALL)
    with pytest.raises(NoClaim, match="a shape that was asked for") as told:
        claim(session("softmax"), made)
    assert f"--shape {WIDE}" in told.value.fix
    with pytest.raises(NoClaim, match="was not timed at 8x8:float32"):
        claim(session("softmax"), made, "8x8:float32")
    assert asdict(found.crown)["device"] == "NVIDIA H200"


USE = """
import torch
from kernels.softmax import SHAPES, reference, softmax, _kernel_for
shapes = [(32768, 1024), (2048, 16384), (4096, 3000)]
taken = set()
for rows, columns in shapes:
    x = torch.randn(rows, columns, dtype=torch.bfloat16, device="cuda")
    torch.testing.assert_close(softmax(x), reference(x))
    taken.add(_kernel_for(rows, columns, x.dtype))
torch._dynamo.reset()
compiled = torch.compile(lambda x: softmax(2 * x) + 1, fullgraph=True, dynamic=True)
for rows, columns in shapes:
    x = torch.randn(rows, columns, dtype=torch.bfloat16, device="cuda")
    torch.testing.assert_close(compiled(x), reference(2 * x) + 1)
y = torch.randn(64, 1000, device="cuda")
torch.testing.assert_close(softmax(y), reference(y))
print(len(SHAPES), len(taken))
"""


@pytest.mark.gpu
def test_on_a_gpu_from_a_tune_to_a_verified_file(tmp_path: Path) -> None:
    """Tune at two shapes, save, call the file at both and at a third, under `torch.compile` too,
    run its test, verify, and tune again without a new race or verdict.
    """
    texts = [source(name) for name in ("online_softmax", "rows_softmax")]
    asked = ["--shape", "32768x1024:bf16", "--shape", "2048x16384:bf16"]
    for text in texts:
        (tmp_path / "kernel.py").write_text(text, encoding="utf-8")
        kept = kmint("judge", str(tmp_path / "kernel.py"), "--op", "softmax", "--keep", "two")
        assert kept.code == 0, kept.err
    folder = tmp_path / "kernels"
    command = ["tune", "1", *asked, "--budget", "6", "--save", str(folder), "--json"]
    done = kmint(*command)
    assert done.code == 0, done.err
    found = done.document
    assert [(one["rows"], one["columns"]) for one in found["shapes"]] == [
        (32768, 1024),
        (2048, 16384),
    ]
    # Neither draft has the best launch settings of both shapes.
    assert any(one["changes"] for one in found["drafts"])
    base = found["drafts"][0]["verdict"]["timing"]["shapes"]
    for row, before in zip(found["shapes"], base, strict=True):
        assert row["ratio"] > 0.97 * before["ratio"]["ratio"]
    used = subprocess.run([sys.executable, "-c", USE], cwd=tmp_path, capture_output=True, text=True)
    assert used.returncode == 0, used.stderr
    checked = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout[-3000:]
    verified = kmint("verify", str(folder / "softmax.py"))
    assert verified.code == 0, verified.out + verified.err
    again = kmint(*command[:-3], "--json")
    assert again.code == 0 and again.document["shapes"] == found["shapes"]
    assert re.search(r"racing \d+ variants", done.err) and "judging" in done.err
    assert not re.search(r"racing \d+ variants|judging", again.err)


@pytest.mark.gpu
def test_on_a_gpu_mint_tunes_at_each_shape(tmp_path: Path) -> None:
    asked = ["--shape", "32768x1024:bf16", "--shape", "2048x16384:bf16"]
    done = kmint(
        "mint", "softmax", "--drafts", "4", "--seed", "1", "--tune", *asked,
        "--save", str(tmp_path / "kernels"), "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    tuning = done.document["tuning"]
    assert [one["shape"] for one in tuning["shapes"]] == [
        "32768x1024:bfloat16",
        "2048x16384:bfloat16",
    ]
    assert kmint("verify", str(tmp_path / "kernels")).code == 0


@pytest.mark.gpu
def test_on_a_gpu_a_gate_measures_each_shape(tmp_path: Path) -> None:
    (tmp_path / "softmax.py").write_text(source("rows_softmax"), encoding="utf-8")
    done = kmint(
        "gate", str(tmp_path / "softmax.py"), "--op", "softmax", "--runs", "2", "--json",
        "--shape", "4096x1024:bf16", "--shape", "512x2048:fp32",
    )  # fmt: skip
    found = done.document
    assert done.code == (0 if found["survives"] else 1), done.err
    assert [one["shape"] for one in found["shapes"]] == ["4096x1024:bfloat16", "512x2048:float32"]
    assert all(len(one["runs"]) == 2 for one in found["shapes"])
