"""`--gpus`, `--ray` and `kmint workers` as commands."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from referee.gpu.replayer import Replayer
from tests.cli.runner import kmint
from tests.cli.test_bad_input import refused
from tests.core.test_farm import KERNEL
from tests.save.test_host_code import GOOD

pytestmark = pytest.mark.usefixtures("warm")

ABSENT = "127.0.0.1:1"


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    (tmp_path / "softmax.py").write_text(GOOD, encoding="utf-8")
    return str(tmp_path / "softmax.py")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--gpus", "one"), "--gpus 'one' names no cards"),
        (("--gpus", "2", "--ray", "auto"), "--gpus and --ray exclude each other"),
        (("--ray-kind", "H200"), "--ray-kind is for --ray"),
        (("--ray", "nowhere"), "not the address of a head"),
        (("--gpus", "2", "--watch"), "--watch judges here"),
    ],
)
def test_options_that_say_nothing_are_exit_2(
    kernel: str, options: tuple[str, ...], words: str
) -> None:
    refused(kmint("judge", kernel, "--level", "screen", *options), 2, words)


def test_cards_and_clusters_that_are_not_there_are_exit_3(kernel: str) -> None:
    words = "no Ray head answers" if find_spec("ray") else "needs the package ray"
    refused(kmint("selftest", "--name", "flat_silu", "--ray", ABSENT), 3, words)
    refused(kmint("workers", "--ray", ABSENT), 3, words)
    if Replayer.available() is not None:
        refused(kmint("judge", kernel, "--gpus", "2"), 3, "there is no GPU here")


def test_a_cluster_is_network_and_offline_refuses_it(kernel: str) -> None:
    refused(kmint("judge", kernel, "--ray", "auto", "--offline"), 4, "keeps kmint offline")


def test_several_smiths_are_addresses() -> None:
    options = ("--model", "http://127.0.0.1:9", "--model", "embedded")
    refused(kmint("mint", "softmax", *options), 2, "embedded is none")


def test_workers_shows_this_host() -> None:
    found = kmint("workers", "--json").document
    assert found["schema"] == "kmint.workers/1" and found["devices"][0]["versions"]["triton"]
    assert found["queue"].startswith("none: no session runs")


@pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: kmint[ray]")
def test_ray_judges_and_a_second_run_judges_nothing(tmp_path: Path) -> None:
    files = []
    for shift in ("1.0", "1.5"):
        file = tmp_path / f"kernel_{shift}.py"
        file.write_text(KERNEL.replace("SHIFT", shift), encoding="utf-8")
        files.append(str(file))
    (tmp_path / "own.py").write_text("def shifted(x):\n    return x * 2 + 1\n", encoding="utf-8")
    words = ("--reference", f"{tmp_path}/own.py:shifted", "--input", "x=f32[4,8]")
    command = ("judge", *files, *words, "--ray", "auto", "--keep", "mine", "--json")
    first, second = kmint(*command), kmint(*command)
    assert [one["verdict"] for one in first.document["verdicts"]] == ["correct", "rejected"]
    assert first.document["verdicts"] == second.document["verdicts"]
    assert "from the history" not in first.err and second.err.count("from the history") == 2


@pytest.mark.parametrize(
    "words",
    [
        ("gate", "KERNEL", "--op", "softmax"),
        ("grid", "KERNEL", "--op", "softmax"),
        ("book", "build"),
        ("book", "rejudge"),
    ],
)
def test_a_command_that_times_asks_the_cluster_before_it_begins(
    kernel: str, words: tuple[str, ...]
) -> None:
    given = [kernel if word == "KERNEL" else word for word in words]
    said = "no Ray head answers" if find_spec("ray") else "needs the package ray"
    refused(kmint(*given, "--ray", ABSENT), 3, said)
