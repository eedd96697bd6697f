"""`kmint mint` with the real parts: llama.cpp runs a model that says what it is told, the referee
judges, the history keeps.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny_models
from tests.cli.runner import Done, kmint
from tests.save.test_host_code import GOOD

pytestmark = pytest.mark.usefixtures("warm")

WRONG = GOOD.replace("x / tl.sum(x, axis=0)", "x")
CHEAT = "def run(x):\n    return torch.softmax(x, dim=-1)\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("models")
    for name, source in (("good", GOOD), ("wrong", WRONG), ("cheat", CHEAT)):
        tiny_models.scripted(folder / f"{name}.gguf", [f"```python\n{source}```".encode()])
    tiny_models.llama(folder / "endless.gguf", end=-9.0)
    return folder


def mint(models: Path, name: str, *arguments: str) -> Done:
    model = str(models / f"{name}.gguf")
    return kmint("mint", "softmax", "--no-template", "--model", model, "--seed", "1", *arguments)


def test_from_an_operation_to_a_saved_kernel(models: Path, tmp_path: Path) -> None:
    done = mint(models, "good", "--drafts", "3", "--json", "--save", str(tmp_path / "kernels"))
    assert done.code == 0, done.err
    document = done.document
    assert (document["schema"], document["op"], document["best"], document["state"]) == (
        "kmint.mint/1",
        "softmax",
        0,
        "done",
    )
    first, *others = document["drafts"]
    assert first["verdict"]["schema"] == "kmint.verdict/1"
    assert first["verdict"]["verdict"] in ("correct", "win", "tie", "loss", "unsure")
    assert [(draft["duplicate_of"], draft["verdict"]) for draft in others] == [(0, None)] * 2
    assert sorted(path.name for path in (tmp_path / "kernels").iterdir()) == [
        "softmax.py",
        "softmax.receipt.json",
        "test_softmax.py",
    ]
    again = kmint("verify", str(tmp_path / "kernels" / "softmax.py"), "--json")
    assert (again.code, again.document["schema"]) == (0, "kmint.verify/1")
    shown = kmint("history", "show", f"{document['history_id']}.0", "--source")
    assert shown.out.startswith("import torch\nimport triton\nimport triton.language as tl\n")
    assert shown.out.endswith(first["source"])
    assert kmint("history", "--json").document["sessions"][0]["passed"] == 3
    own_test = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "kernels")],
        capture_output=True,
    )
    assert own_test.returncode == 0, own_test.stdout


@pytest.mark.parametrize(("name", "stage"), [("wrong", "correct"), ("cheat", "screen")])
def test_nothing_passed_is_exit_1_with_the_reason(models: Path, name: str, stage: str) -> None:
    done = mint(models, name, "--drafts", "1")
    assert done.code == 1, done.err
    assert f"{stage}: " in done.out
    assert "0 of 1 drafts correct\nno kernel passed\n" in done.out
    assert kmint("save", "1.0", "--to", "x").code == 2


def test_rejected_drafts_go_back_with_the_reason(models: Path) -> None:
    done = mint(models, "wrong", "--drafts", "2", "--repair", "2", "--max-tokens", "300")
    assert done.code == 1, done.err
    assert "round 2: 2 rejected drafts go back" in done.err
    assert "repairs 1.3; the same kernel as 1." in done.out
    drafts = kmint("history", "show", "1", "--json").document["drafts"]
    assert [(draft["round"], draft["parent"]) for draft in drafts] == [(0, None)] * 2 + [
        (1, 0),
        (1, 1),
        (2, 2),
        (2, 3),
    ]
    # This model says the same again, whatever it is told: the kernel is judged once.
    assert sum(draft["verdict"] is not None for draft in drafts) == 1
    assert {draft["author"] for draft in drafts} == {"smith"}
    assert kmint("history", "show", "1").out.splitlines()[-1].split()[:2] == ["1.5", "1.3"]


def test_the_stream_of_events(models: Path) -> None:
    done = mint(models, "good", "--drafts", "1", "--jsonl")
    events = [json.loads(line) for line in done.out.splitlines()]
    assert {event["schema"] for event in events} == {"kmint.mint-event/1"}
    names = [
        event["event"]
        for event in events
        if event["event"] not in ("choices", "notice", "tokens", "cases")
    ]
    counts = [(event["done"], event["total"]) for event in events if event["event"] == "cases"]
    assert counts == sorted(counts) and counts[-1][0] == counts[-1][1] > 100
    assert names == ["started", "draft", "judging", "verdict", "done"]
    assert events[-1]["result"]["schema"] == "kmint.mint/1"


def test_the_same_seed_gives_the_same_drafts(models: Path) -> None:
    runs = [
        mint(models, "endless", "--drafts", "3", "--max-tokens", "24", "--json").document
        for _ in range(2)
    ]
    first, second = ([draft["source"] for draft in run["drafts"]] for run in runs)
    assert first == second


def test_ctrl_c_keeps_what_is_done_and_leaves_no_process(models: Path, kmint_home: Path) -> None:
    command = [
        "mint",
        "softmax",
        "--model",
        str(models / "endless.gguf"),
        "--drafts",
        "2",
        "--max-tokens",
        "900",
        "--jsonl",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "kmint_tui", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(json.loads(line))
        if lines[-1]["event"] == "tokens":
            process.send_signal(signal.SIGINT)
            break
    out, err = process.communicate()
    assert process.returncode == 130, err
    result = json.loads(out.splitlines()[-1])["result"]
    assert result["state"] == "stopped"
    assert {draft["finish"] for draft in result["drafts"]} == {"cancelled"}
    assert "Traceback" not in err
    (session,) = kmint("history", "--json").document["sessions"]
    assert (session["state"], session["drafted"]) == ("stopped", 0)
    assert not [
        pid
        for pid in Path("/proc").iterdir()
        if pid.name.isdigit() and _home_of(pid) == str(kmint_home)
    ]


def _home_of(process: Path) -> str | None:
    try:
        variables = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    own = process.name == str(os.getpid())
    return next(
        (item[12:].decode() for item in variables if item.startswith(b"KMINT_HOME=") and not own),
        None,
    )


def test_minting_needs_no_network() -> None:
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    if subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip("this system allows no network namespace of one's own")
    command = [
        *alone,
        sys.executable,
        "-m",
        "kmint_tui",
        "mint",
        "softmax",
        "--drafts",
        "4",
        "--seed",
        "1",
        "--until",
        "first",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert "best: 1." in done.stdout
