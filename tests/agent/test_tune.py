"""`tune`: its refusal without a GPU, and what it does with the races of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kmint_tui.agent.call import Call
from kmint_tui.agent.folders import Folders
from kmint_tui.agent.tools import Toolbox
from kmint_tui.core import planning
from kmint_tui.errors import EnvironmentUnfit, UsageError
from kmint_tui.save.judged_part import BEGIN, END
from referee.variant_timing import VariantsNotTimed, VariantTime
from referee.verdict import Verdict
from tests.agent.clients import connected, document, refusal, run
from tests.agent.kernels import GOOD, WRONG
from tests.cli.runner import kmint
from tests.referee.gpu.test_variant_timing import SLOW

FASTER = "num_warps=16"
CHANGES = "num_warps 8 if BLOCK >= 4096 else 4 -> 16"


def test_without_a_gpu_it_refuses_as_the_command_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    command = kmint("mint", "softmax", "--tune")

    async def work() -> None:
        async with connected() as client:
            for arguments in ({"source": GOOD, "op": "softmax", "session": "a"}, {"draft": "9.9"}):
                found = await refusal(client, "tune", **arguments)
                assert (found["code"], found["title"]) == (command.code, "tuning needs a GPU")
                reason = found["message"].removeprefix("tune ")
                assert reason in command.err and found["title"] in command.err
            assert (await document(client, "history"))["sessions"] == []

    run(work)


class Scripted:
    """In place of a GPU: kernels with more warps are faster, and `WRONG` is wrong."""

    def __init__(self) -> None:
        self.judged: list[str] = []
        self.reason = ""

    def judge(self, source: str, op: Any, **options: Any) -> Verdict:
        self.judged.append(source)
        if source == WRONG:
            return Verdict("softmax", "rejected", "correct", "off", "wrong_answer", "replay")
        timing = {"ratio": {"ratio": 1.5 if FASTER in source else 1.1}}
        return Verdict("softmax", "win", "done", "", None, "replay", timing=timing)

    def time_variants(
        self, sources: Sequence[str], op: Any, *, seed: int | None = None
    ) -> Sequence[VariantTime]:
        if self.reason:
            raise VariantsNotTimed(self.reason)
        ratios = [1.4 if FASTER in source else 1.0 for source in sources]
        return [VariantTime(20 / ratio, ratio) for ratio in ratios]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    monkeypatch.setattr(planning, "no_gpu_reason", lambda: None)
    return Scripted()


def called(referee: Any, folder: Path, tool: str, **given: Any) -> dict[str, Any]:
    return Toolbox(referee, Folders.of([folder]), references=False).call(tool, given, Call())


def test_the_tuned_kernel_joins_the_drafts_session(scripted: Scripted, tmp_path: Path) -> None:
    found = called(scripted, tmp_path, "tune", source=GOOD, op="softmax", session="one")
    assert (found["schema"], found["draft"], found["tuned"]) == ("kmint.tune/1", "1.0", "1.1")
    assert (found["changes"], FASTER in found["source"]) == (CHANGES, True)
    ratios = [found[name]["timing"]["ratio"]["ratio"] for name in ("verdict", "tuned_verdict")]
    assert ratios == [1.1, 1.5]
    assert len(found["trials"]) > 3 and found["reason"].startswith("1.400x")
    tuned = called(scripted, tmp_path, "history", id="1.1")
    assert (tuned["author"], tuned["parent"], tuned["source"]) == ("tuner", 0, found["source"])
    # The draft has a verdict with times now, and the same kernel is not stored again.
    before = len(scripted.judged)
    assert called(scripted, tmp_path, "tune", draft="1.0")["tuned"] == "1.1"
    assert len(scripted.judged) == before + 1
    called(scripted, tmp_path, "judge", source=WRONG, op="softmax", session="one")
    session = called(scripted, tmp_path, "history", id="1")
    assert (session["wanted"], len(session["drafts"])) == (2, 3)


def test_without_a_session_nothing_is_kept(scripted: Scripted, tmp_path: Path) -> None:
    found = called(scripted, tmp_path, "tune", source=GOOD, op="softmax")
    assert (found["draft"], found["tuned"], found["tuned_verdict"]["verdict"]) == (
        None,
        None,
        "win",
    )
    assert called(scripted, tmp_path, "history")["sessions"] == []


def test_a_kernel_that_is_rejected_is_not_tuned(scripted: Scripted, tmp_path: Path) -> None:
    found = called(scripted, tmp_path, "tune", source=WRONG, op="softmax")
    assert (found["trials"], found["source"], found["verdict"]["verdict"]) == ([], None, "rejected")
    assert "only a kernel that passed" in found["reason"]


def test_a_saved_kernel_says_its_operation(scripted: Scripted, tmp_path: Path) -> None:
    block = '# /// kmint\n# op = "softmax"\n# ///\n'
    part = GOOD.replace("def run(", "def _run(")
    (tmp_path / "saved.py").write_text(f"{block}{BEGIN}\n{part}\n{END}\n", encoding="utf-8")
    found = called(scripted, tmp_path, "tune", file="saved.py")
    assert (found["op"], found["changes"]) == ("softmax", CHANGES)
    own = block.replace("# ///\n", '# reference = "mine.py"\n# ///\n')
    (tmp_path / "own.py").write_text(f"{own}{BEGIN}\n{part}\n{END}\n", encoding="utf-8")
    with pytest.raises(UsageError, match="reference of the user's own"):
        called(scripted, tmp_path, "tune", file="own.py")


def test_what_cannot_be_tuned_is_told(scripted: Scripted, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="goes with `reference` alone"):
        called(scripted, tmp_path, "tune", draft="1.0", source=GOOD)
    scripted.reason = "the GPU is gone"
    with pytest.raises(EnvironmentUnfit, match="the GPU is gone"):
        called(scripted, tmp_path, "tune", source=GOOD, op="softmax")


@pytest.mark.gpu
def test_on_a_gpu_a_badly_launched_kernel_becomes_faster() -> None:
    async def work() -> None:
        async with connected() as client:
            found = await document(client, "tune", source=SLOW, op="relu2", session="slow")
            assert (found["draft"], found["tuned"]) == ("1.0", "1.1")
            both = found["verdict"], found["tuned_verdict"]
            timed = [verdict["timing"]["ratio"]["ratio"] for verdict in both]
            assert timed[1] > 1.1 * timed[0]

    run(work)
