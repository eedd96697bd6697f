"""`kmint judge` with several files, names that say the operation, `ModelNew`, and `--watch`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kmint_tui.cli.watching import saves
from kmint_tui.core.kernel_file import guessed_operation
from kmint_tui.errors import UsageError
from tests.cli.runner import kmint
from tests.cli.test_bad_input import refused
from tests.save.test_host_code import GOOD

pytestmark = pytest.mark.usefixtures("warm")

BAD = "def run(x):\n"
REFERENCE = '''
import torch
from torch import nn


class Model(nn.Module):
    """x * weight + shift"""

    def __init__(self, features, shift):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.shift = shift

    def forward(self, x):
        return x * self.weight + self.shift


def get_inputs():
    return [torch.randn(5, 33)]


def get_init_inputs():
    return [33, 0.5]
'''
MODEL_NEW = """
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _kernel(x_ptr, w_ptr, y_ptr, n, shift, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    w = tl.load(w_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + row * n + at, x * w + shift, mask=at < n)


class ModelNew(nn.Module):
    def __init__(self, features, shift):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.shift = shift

    def forward(self, x):
        y, n = torch.empty_like(x), x.shape[-1]
        _kernel[(x.numel() // n,)](x, self.weight, y, n, self.shift, BLOCK=triton.next_power_of_2(n))
        return y
"""


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_several_files_are_one_document_and_the_worst_code(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "softmax.py", GOOD), write(tmp_path / "softmax_bad.py", BAD)
    done = kmint(
        "judge",
        good,
        bad,
        "-",
        "--op",
        "softmax",
        "--level",
        "screen",
        "--json",
        stdin=GOOD.encode(),
    )
    document = done.document
    assert (done.code, document["schema"]) == (1, "kmint.verdicts/1")
    found = [(one["file"], one["verdict"], one["schema"]) for one in document["verdicts"]]
    verdict = "kmint.verdict/1"
    assert found == [
        (good, "unsure", verdict),
        (bad, "rejected", verdict),
        ("stdin", "unsure", verdict),
    ]


def test_one_unreadable_file_stops_before_any_is_judged(tmp_path: Path) -> None:
    good = write(tmp_path / "softmax.py", GOOD)
    refused(
        kmint("judge", good, str(tmp_path / "none.py"), "--op", "softmax"),
        2,
        "none.py",
        "cannot be read",
    )


def test_the_operation_is_guessed_from_the_name_and_said(tmp_path: Path) -> None:
    done = kmint("judge", write(tmp_path / "my_softmax_v2.py", GOOD), "--level", "screen", "--json")
    assert (done.code, done.document["op"]) == (0, "softmax")
    assert "my_softmax_v2.py is taken for a kernel of softmax" in done.err


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("softmax.py", "softmax"),
        ("log_softmax.py", "log_softmax"),
        ("try3-Log-Softmax.txt", "log_softmax"),
        ("add_rmsnorm_gelu_tanh.py", "add_rmsnorm_gelu_tanh"),
        ("softmax_softmax.py", "softmax"),
    ],
)
def test_the_longest_name_among_the_words_counts(name: str, op: str) -> None:
    assert guessed_operation(name) == op


@pytest.mark.parametrize(
    ("name", "words"),
    [("kernel.py", "no operation"), ("softmax_or_rmsnorm.py", "softmax and of rmsnorm")],
)
def test_a_name_without_one_operation_is_refused(name: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        guessed_operation(name)


def test_what_cannot_be_guessed_is_asked_for(tmp_path: Path) -> None:
    refused(kmint("judge", "-", stdin=GOOD.encode()), 2, "standard input", "--op OP")
    refused(kmint("judge", write(tmp_path / "kernel.py", GOOD)), 2, "no operation", "--op OP")


def test_a_model_new_is_judged_as_run(tmp_path: Path) -> None:
    reference, kernel = (
        write(tmp_path / "reference.py", REFERENCE),
        write(tmp_path / "new.py", MODEL_NEW),
    )
    done = kmint("judge", kernel, "--reference", reference, "--json")
    assert (done.code, done.document["verdict"]) == (0, "correct"), done.out + done.err
    assert "ModelNew.forward is judged as run(x, weight)" in done.err
    wrong = write(tmp_path / "wrong.py", MODEL_NEW.replace("+ shift, mask", "- shift, mask"))
    assert kmint("judge", wrong, "--reference", reference).code == 1
    torch_call = write(
        tmp_path / "call.py",
        MODEL_NEW.replace("y, n = torch", "x = self.linear(x)\n        y, n = torch"),
    )
    refused(
        kmint("judge", torch_call, "--reference", reference), 2, "self.linear", "function `run`"
    )


@pytest.mark.parametrize("files", [["-"], ["a.py", "b.py"]])
def test_a_watch_takes_one_file(files: list[str]) -> None:
    refused(kmint("judge", *files, "--op", "softmax", "--watch"), 2, "--watch takes one file")


def test_stdin_is_read_once() -> None:
    refused(kmint("judge", "-", "-", "--op", "softmax", stdin=GOOD.encode()), 2, "once")


def test_a_watch_judges_at_every_save_until_ctrl_c(tmp_path: Path) -> None:
    file = tmp_path / "softmax.py"
    write(file, GOOD)
    command = [
        sys.executable,
        "-m",
        "kmint_tui",
        "judge",
        str(file),
        "--watch",
        "--level",
        "screen",
        "--json",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    first = json.loads(process.stdout.readline())
    write(file, BAD)
    second = json.loads(process.stdout.readline())
    write(file, "")
    assert any("is empty" in line for line in process.stderr)
    write(file, GOOD)
    third = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGINT)
    process.communicate()
    found = [first["verdict"], second["verdict"], third["verdict"], process.returncode]
    assert found == ["unsure", "rejected", "unsure", 130]
    assert (first["schema"], first["file"]) == ("kmint.verdict/1", str(file))


def test_saves_are_seen_and_nothing_else_is(tmp_path: Path) -> None:
    """The steps are what happens to the file while the watch waits."""
    file = tmp_path / "kernel.py"
    file.write_text("1")
    steps: Iterator[str] = iter(["", "save", "", "", "remove", "", "save", "more", "", ""])
    seen: list[str] = []

    def wait() -> bool:
        step = next(steps, None)
        if step == "remove":
            file.unlink()
        elif step:
            file.write_text((file.read_text() if file.exists() else "") + step)
        return step is not None

    for _ in saves(file, wait):
        seen.append(file.read_text())
    assert seen == ["1", "1save", "savemore"]
