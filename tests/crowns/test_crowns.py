"""Crowns change hands only by a win in a duel, and their history is kept."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kmint_tui import paths
from kmint_tui.core.duel import head_to_head
from kmint_tui.crowns.records import Claim, Crown, Duel, NoClaim, claim
from kmint_tui.crowns.report import html, markdown
from kmint_tui.crowns.store import Crowns, challenge
from kmint_tui.errors import EnvironmentUnfit
from kmint_tui.history.records import Draft, NewDraft, NewSession
from kmint_tui.history.store import History
from referee.timing.stats import Decision
from referee.versions import FP_FUSION
from tests.cli.runner import kmint
from tests.evil import EVIL, STEERS

pytestmark = pytest.mark.usefixtures("warm")

CROWN = Crown("softmax", "f16-8192x4096-normal-x1", "NVIDIA H200", "2.11", "3.6")


def claimant(name: str, *, crown: Crown = CROWN, ratio: float = 1.2) -> Claim:
    return Claim(
        crown=crown,
        draft=name,
        model="gold",
        source=f"# {name}\n",
        device_us=20.0,
        ratio=ratio,
        bar="compile",
    )


def duel(decision: Decision) -> Duel:
    return Duel(
        decision=decision,
        reason="",
        ratio=1.1,
        low=1.05,
        high=1.15,
        challenger_us=18.0,
        champion_us=20.0,
        rounds=120,
        seed=7,
    )


def never(challenger: str, champion: str, crown: Crown) -> Duel:
    raise AssertionError("nobody should be replayed")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Crowns]:
    with Crowns(tmp_path / "history.db") as opened:
        yield opened


def test_a_vacant_crown_needs_no_duel(store: Crowns) -> None:
    result = challenge(store, claimant("1.0"), never)
    assert (result.outcome, result.holder.draft, result.before) == ("vacant", "1.0", None)


@pytest.mark.parametrize("decision", ["loss", "tie", "unsure"])
def test_only_a_win_takes_it(store: Crowns, decision: Decision) -> None:
    challenge(store, claimant("1.0"), never)
    kept = challenge(store, claimant("2.0", ratio=9.0), lambda *sources: duel(decision))
    assert (kept.outcome, kept.holder.draft) == ("kept", "1.0")
    seen: list[tuple[str | Crown, ...]] = []
    taken = challenge(store, claimant("2.0"), lambda *sources: seen.append(sources) or duel("win"))  # type: ignore[func-returns-value]
    assert (taken.outcome, taken.holder.draft) == ("taken", "2.0")
    assert seen == [("# 2.0\n", "# 1.0\n", CROWN)]
    past = store.reigns(past=True)
    assert [(reign.draft, reign.ended is None) for reign in past] == [("2.0", True), ("1.0", False)]
    assert past[0].duel == duel("win").to_json()


def test_the_holder_does_not_fight_itself(store: Crowns) -> None:
    challenge(store, claimant("1.0"), never)
    assert challenge(store, replace(claimant("5.0"), source="# 1.0\n"), never).outcome == "held"


@pytest.mark.parametrize("field", ["device", "torch", "triton", "op", "cell"])
def test_nothing_compares_across_devices_or_versions(store: Crowns, field: str) -> None:
    challenge(store, claimant("1.0"), never)
    other = replace(CROWN, **{field: "other"})
    assert challenge(store, claimant("2.0", crown=other), never).outcome == "vacant"
    assert len(store.reigns()) == 2


def test_a_verdict_under_another_switch_claims_another_crown(store: Crowns, tmp_path: Path) -> None:
    """Kernels with and without fused multiply-adds are different programs."""
    with History(tmp_path / "history.db") as history:
        crowns = []
        for value in ("1", "0"):
            environment = {**verdict()["environment"], "switches": {FP_FUSION: value}}
            draft = kept_draft(history, verdict(environment=environment))
            crowns.append(claim(history.session(draft.session), draft).crown)
    assert crowns == [CROWN, replace(CROWN, triton=f"{CROWN.triton} {FP_FUSION}=0")]
    for number, crown in enumerate(crowns):
        assert challenge(store, claimant(f"{number}.0", crown=crown), never).outcome == "vacant"


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({}, ()),
        ({"switches": {FP_FUSION: "0"}}, ("triton",)),
        ({"triton": "3.9"}, ("triton",)),
        ({"torch": "2.15", "device": "NVIDIA L4"}, ("device", "torch")),
    ],
)
def test_a_crown_names_what_differs(changes: dict[str, Any], differing: tuple[str, ...]) -> None:
    assert CROWN.differences({**verdict()["environment"], **changes}) == differing


@pytest.mark.parametrize("known", ["before", "after"])
def test_no_duel_is_fought_in_another_environment(
    monkeypatch: pytest.MonkeyPatch, known: str
) -> None:
    """The switches are known before the duel, the device afterwards."""
    fought: list[str] = []

    def fight(*sources: str, **options: object) -> SimpleNamespace:
        fought.append(sources[2])
        return SimpleNamespace(environment={**verdict()["environment"], "device": "NVIDIA L4"})

    switches = {FP_FUSION: "0" if known == "before" else "1"}
    monkeypatch.setattr("kmint_tui.core.referee.no_gpu_reason", lambda: None)
    monkeypatch.setattr("referee.head_to_head.time_head_to_head", fight)
    monkeypatch.setattr(
        "referee.versions.describe_triton", lambda: {"triton": CROWN.triton, "switches": switches}
    )
    with pytest.raises(EnvironmentUnfit) as refused:
        head_to_head("# 2.0", "# 1.0", CROWN, demand="files")
    if known == "before":
        assert (fought, f"triton is 3.6 {FP_FUSION}=0 here" in refused.value.message) == ([], True)
    else:
        assert (fought, "device is NVIDIA L4 here" in refused.value.message) == (["softmax"], True)


def test_a_duel_that_fails_changes_nothing(store: Crowns) -> None:
    challenge(store, claimant("1.0"), never)

    def lost(*sources: str | Crown) -> Duel:
        raise RuntimeError("the GPU is gone")

    with pytest.raises(RuntimeError, match="GPU is gone"):
        challenge(store, claimant("2.0"), lost)
    assert [reign.draft for reign in store.reigns(past=True)] == ["1.0"]


def test_a_record_that_changed_during_the_duel_is_fought_again(
    store: Crowns, tmp_path: Path
) -> None:
    challenge(store, claimant("1.0"), never)
    seen: list[str] = []

    def overtaken(challenger: str, champion: str, crown: Crown) -> Duel:
        seen.append(champion)
        if len(seen) == 1:
            with Crowns(tmp_path / "history.db") as other:
                challenge(other, claimant("3.0"), lambda *sources: duel("win"))
        return duel("win")

    result = challenge(store, claimant("2.0"), overtaken)
    assert seen == ["# 1.0\n", "# 3.0\n"]
    assert (result.outcome, result.holder.draft, len(store.reigns(past=True))) == (
        "taken",
        "2.0",
        3,
    )


def test_many_claimants_at_once_leave_one_holder(tmp_path: Path) -> None:
    file = tmp_path / "history.db"
    Crowns(file).__exit__(None, None, None)

    def claims(number: int) -> None:
        with Crowns(file) as own:
            challenge(own, claimant(f"{number}.0"), lambda *sources: duel("loss"))

    threads = [threading.Thread(target=claims, args=(number,), daemon=True) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Crowns(file) as store:
        assert len(store.reigns(past=True)) == 1
    with sqlite3.connect(file) as raw, pytest.raises(sqlite3.IntegrityError):
        raw.execute(
            "INSERT INTO reigns (op, cell, device, torch, triton, draft, model, source_sha256, began, device_us, ratio, bar)"
            " SELECT op, cell, device, torch, triton, draft, model, source_sha256, began, device_us, ratio, bar FROM reigns"
        )
    raw.close()


def verdict(**changes: Any) -> dict[str, Any]:
    timing = {
        "cell": CROWN.cell,
        "bar": "compile",
        "ratio": {"ratio": 1.2},
        "device": {"candidate": {"median": 20.0}},
    }
    environment = {"device": CROWN.device, "torch": CROWN.torch, "triton": CROWN.triton}
    return {"verdict": "win", "timing": timing, "environment": environment, **changes}


def kept_draft(history: History, document: dict[str, Any]) -> Draft:
    number = history.begin(
        NewSession(
            op="softmax",
            model="gold",
            model_file="m.gguf",
            model_sha256="ab" * 32,
            system="s",
            user="u",
            seed=7,
            wanted=1,
            settings={},
            environment={},
        )
    )
    history.add_draft(
        number,
        NewDraft(
            number=0,
            source="# source\n",
            seed=1,
            temperature=0.7,
            tokens=10,
            seconds=1.0,
            finish="stop",
        ),
    )
    history.set_verdict(number, 0, document, ratio=1.2)
    return history.draft(number, 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "tie"},
        {"timing": None},
        {"environment": {}},
        {"holds": {"words": "holds for float32", "refused": [], "circumstances": []}},
        {"timing": {**verdict()["timing"], "cell": "bf16-32768x1024-asked-x1"}},
    ],
)
def test_what_did_not_win_claims_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    with History(tmp_path / "history.db") as history:
        good, bad = kept_draft(history, verdict()), kept_draft(history, verdict(**changes))
        assert claim(history.session(good.session), good).crown == CROWN
        with pytest.raises(NoClaim):
            claim(history.session(bad.session), bad)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)


def test_reports_hold_every_crown_and_no_foreign_markup(store: Crowns) -> None:
    challenge(store, replace(claimant("1.0"), model="<script>|x"), never)
    challenge(store, replace(claimant("2.0"), model=EVIL), lambda *sources: duel("win"))
    challenge(
        store,
        replace(claimant("3.0", crown=replace(CROWN, device="NVIDIA <b>L4")), model="<script>|x"),
        never,
    )
    reigns = store.reigns(past=True)
    text, page = markdown(reigns), html(reigns)
    assert text.count("## NVIDIA") == 2 and "1.100x as fast" in text and "<script" not in text
    assert text.count(" | 2.0 | ") == 1 and text.count(" | 1.0 | ") == 0
    assert not STEERS.search(text) and not STEERS.search(page)
    tags = _Tags()
    tags.feed(page)
    assert "script" not in tags.seen and "b" not in tags.seen and tags.seen.count("rect") == 2


def test_crowns_that_cannot_be_written_are_still_listed(tmp_path: Path, kmint_home: Path) -> None:
    """As on a full disk or a read-only mount: SQLite cannot make the files that it wants beside its
    own.
    """
    file = paths.history_file()
    with History(file) as history:
        draft = kept_draft(history, verdict())
    with Crowns(file) as store:
        challenge(store, claimant("7.0"), never)
    file.with_name(f"{file.name}-shm").symlink_to("nowhere")
    assert [reign["draft"] for reign in kmint("crowns", "--json").document["reigns"]] == ["7.0"]
    assert kmint("crowns", "--report", str(tmp_path / "crowns.md")).code == 0
    assert CROWN.device in (tmp_path / "crowns.md").read_text(encoding="utf-8")
    refused = kmint("crowns", "claim", draft.id)
    assert (refused.code, refused.out, "history.db" in refused.err) == (6, "", True)


def test_the_command(tmp_path: Path, kmint_home: Path) -> None:
    assert kmint("crowns", "--json").document["reigns"] == []
    file = paths.history_file()
    with History(file) as history:
        first = kept_draft(history, verdict())
        lost = kept_draft(history, verdict(verdict="loss"))
    done = kmint("crowns", "claim", first.id, "--json")
    assert (done.code, done.document["outcome"]) == (0, "vacant")
    assert kmint("crowns", "claim", lost.id).code == 2
    assert first.id in kmint("crowns", "--op", "softmax").out
    for name in ("crowns.md", "crowns.html"):
        assert kmint("crowns", "--report", str(tmp_path / name)).code == 0
        assert CROWN.device in (tmp_path / name).read_text(encoding="utf-8")
    assert kmint("crowns", "--report", str(tmp_path / "crowns.pdf")).code == 2
    assert kmint("crowns", "--report", str(tmp_path / "nowhere" / "crowns.md")).code == 6
