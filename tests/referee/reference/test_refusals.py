"""What cannot be judged is refused in one line, before anything is drafted: what it is, where it
stands, and what to do.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.reference import weight
from referee.reference.asked import Asked
from referee.reference.load import load_reference
from referee.reference.unusable import TooLarge, UnusableReference

FILE = """
import random
import torch
import torch.nn.functional as F

def dropped(x):
    return F.dropout(x, 0.1)

def off(x):
    return F.dropout(x, 0.1, training=False) + F.dropout(x, 0.0)

def noisy(x):
    return x + torch.randn_like(x)

def lucky(x):
    return x * random.random()

def chosen(x):
    return x[x > 0]

def masked(x):
    out = x.clone()
    out[x > 0] = 0
    return out

def spectrum(x):
    return torch.fft.fft(x)

def number(x):
    return 3.0

def nothing(x):
    x + 1

def failing(x):
    raise ValueError("never\\ntwice")

def leaving(x):
    raise SystemExit(3)

def get_inputs():
    return [torch.randn(1 << 20, 1 << 20)]
"""


def load(folder: Path, name: str, *inputs: str) -> None:
    file = folder / "reference.py"
    file.write_text(FILE)
    load_reference(Asked(str(file), name, inputs))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "dropped",
            "uses dropout in training mode at line 7 (`return F.dropout(x, 0.1)`), so that no answer is right",
        ),
        ("noisy", "draws random numbers at line 13 (`return x + torch.randn_like(x)`)"),
        ("lucky", "gives different answers to the same inputs"),
        (
            "chosen",
            "depends on values, at line 19 (`return x[x > 0]`): a kernel's launches follow shapes only",
        ),
        ("spectrum", "out has dtype complex64, which the referee does not judge"),
        (
            "number",
            "must return a tensor or a tuple of tensors, or change an argument in place: it returned a float",
        ),
        ("nothing", "or change an argument in place: it changed none in place"),
        ("failing", "the reference fails on inputs of shapes [129]: ValueError: never twice"),
        ("leaving", "the reference ended the process: exit(3)"),
    ],
)
def test_what_cannot_be_judged_says_why(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(UnusableReference) as refused:
        load(tmp_path, name, "x=f32[N]")
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["off", "masked"])
def test_what_only_looks_like_it_is_taken(tmp_path: Path, name: str) -> None:
    """Dropout that drops nothing, and a mask that chooses no shape."""
    load(tmp_path, name, "x=f32[N]")


@pytest.mark.parametrize("inputs", ["x=f64[N]", "x=fp8[N]", "x=c64[N]"])
def test_dtypes_that_are_not_judged_are_refused(tmp_path: Path, inputs: str) -> None:
    with pytest.raises(
        UnusableReference,
        match="expected one of the dtypes bf16, f16, f32, i8, i16, i32, i64, u8, bool",
    ):
        load(tmp_path, "masked", inputs)


def test_inputs_that_need_too_much_memory_are_not_made(tmp_path: Path) -> None:
    """get_inputs() of four tebibytes: said before a byte of it is allocated, with the memory that
    it would need.
    """
    with pytest.raises(TooLarge) as refused:
        load(tmp_path, "masked")
    assert "get_inputs() makes tensors of 4096.0 GiB (f32[1048576,1048576])" in str(refused.value)
    assert "give the shapes with --input" in str(refused.value)


def test_inputs_are_weighed_by_the_memory_that_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "small.py"
    file.write_text(
        "import torch\ndef f(x): return x * 2\ndef get_inputs(): return [torch.ones(1000)]\n"
    )
    monkeypatch.setattr(weight, "free_bytes", lambda: 7000)
    with pytest.raises(TooLarge, match=r"f32\[1000\]"):
        load_reference(Asked(str(file)))
    monkeypatch.setattr(weight, "free_bytes", lambda: 9000)
    assert load_reference(Asked(str(file))).tensors == ("x",)
