"""The numbers of one thing agree wherever kmint prints them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kmint_tui.memory import free_memory
from kmint_tui.models import registry
from kmint_tui.models.fit import assess, readable
from kmint_tui.models.store import resolve
from kmint_tui.models.usage import note
from tests.cli.runner import kmint
from tests.save.test_host_code import GOOD

pytestmark = pytest.mark.usefixtures("warm")


def test_ops_show_and_a_verdict_count_the_same_cases(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(GOOD, encoding="utf-8")
    verdict = kmint("judge", str(file), "--op", "softmax", "--target", "sm_90", "--json").document
    if verdict["mode"] == "replay":
        pytest.skip("a GPU replays; tests/referee/judge/test_case_list.py has its numbers")
    shown = kmint("ops", "show", "softmax", "--json").document["cases"]["cpu"]
    roles = [cell["role"] == "capability" for cell in verdict["cells"]]
    assert (roles.count(False), roles.count(True)) == (shown["required"], shown["capabilities"])
    checks = {check["name"]: check["detail"] for check in verdict["checks"]}
    assert checks["trace"].startswith(f"{shown['required']} ")
    assert verdict["reason"].startswith(f"{shown['required']} ")
    text = kmint("ops", "show", "softmax").out
    assert (
        f"without a GPU: {shown['required']} cases, {shown['fixed']} fixed and "
        f"{shown['drawn']} drawn" in text
    )
    assert (
        len(re.findall(r"^\S+ +(?:required|capability|bench) ", text, re.MULTILINE))
        > shown["fixed"]
    )


def test_the_plan_and_models_show_tell_the_same_memory() -> None:
    """The referee's share and the model's own buffers too; only what is free may change between
    two commands."""
    plan = kmint("mint", "softmax", "--dry-run", "--drafts", "8", "--json").document["memory"]
    shown = kmint("models", "show", "embedded", "--json").document["memory"]
    assert (plan["need"], plan["reserve"], plan["place"]) == (
        shown["need"],
        shown["reserve"],
        shown["place"],
    )
    memory = re.compile(
        r"^memory.*?the smith needs (\S+ \S+) \((\S+ \S+) of it for the model\), "
        r"the referee (\S+ \S+),",
        re.MULTILINE,
    )
    texts = [
        memory.search(kmint(*words).out)
        for words in (("mint", "softmax", "--dry-run"), ("models", "show", "embedded"))
    ]
    assert all(texts)
    assert len({found.groups() for found in texts if found}) == 1


def test_a_session_names_the_estimate_of_its_plan(tmp_path: Path) -> None:
    model = resolve(registry.load(tmp_path / "none"), "embedded").file
    log = tmp_path / "log"
    log.write_text(
        "load_tensors: CPU model buffer size = 10.00 MiB\nsched_reserve: CPU compute buffer"
        " size = 1.00 MiB\n"
    )
    buffers = readable(assess(model, drafts=8, max_tokens=1024).need.buffers)
    if free_memory().gpu is not None:
        pytest.skip("the log is one of a model in main memory")
    assert f"the estimate was {buffers} " in (note(log, model, drafts=8, max_tokens=1024) or "")
