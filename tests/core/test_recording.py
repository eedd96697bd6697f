"""One call of a script, recorded: what --input says of it, and why there is none."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kmint_tui.core.recorded_call import RecordError, record_of, recorded_text
from kmint_tui.core.recording import record
from referee.reference.asked import Asked
from referee.reference.grammar import parse_inputs
from referee.reference.load import load_reference
from referee.reference.unusable import UnusableReference

LAYERS = """
import torch

def norm(x, w, labels, mask, options, eps=1e-6, mode="mean", dtype=None):
    return x * w

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(64))

    def forward(self, q, scale=None):
        return q * self.weight
"""
SCRIPT = """
import sys
import torch
import layers
from layers import Layer, norm

def own(x, y):
    return x + y

if __name__ == "__main__":
    columns = torch.randn(64, 32, dtype=torch.bfloat16).t()
    labels = torch.tensor([3, -100, 5, 7, 7])
    options = {"bias": torch.rand(3), "k": 2, "call": print}
    norm(columns, torch.rand(64) + 1, labels, torch.ones(3, dtype=torch.bool), options, eps=1e-5, dtype=torch.float16)
    Layer()(torch.randn(4, 64)[:, :32].expand(4, 32) if len(sys.argv) > 2 else torch.randn(4, 64), scale=0.5)
    own(torch.ones(3).expand(4, 3), 3)
    own(torch.zeros(2, dtype=torch.float64), 3)
    print("end")
"""


@pytest.fixture(autouse=True)
def _forget_layers() -> Iterator[None]:
    """Each test has a module of that name in a folder of its own."""
    yield
    sys.modules.pop("layers", None)


def written(folder: Path) -> Path:
    (folder / "layers.py").write_text(LAYERS)
    (folder / "script.py").write_text(SCRIPT)
    return folder / "script.py"


@pytest.mark.parametrize(
    ("function", "number", "text"),
    [
        ("layers:Layer", 1, "q=f32[4,64]:normal scale=0.5"),
        ("layers:Layer.forward", 1, "q=f32[4,64]:normal scale=0.5"),
        ("own", 1, "x=f32[4,3]:uniform y=3"),
        ("script:own", 1, "x=f32[4,3]:uniform y=3"),
    ],
)
def test_a_call_is_recorded(tmp_path: Path, function: str, number: int, text: str) -> None:
    """Of a function, class or method of another module, or of the script's own."""
    found = record(written(tmp_path), function, (), number)
    assert found.inputs.text() == text


def test_layouts_values_and_nested_arguments(tmp_path: Path) -> None:
    found = record(written(tmp_path), "layers:norm", ())
    entries = {name: str(entry) for name, entry in found.inputs.entries}
    assert entries["x"] == "bf16[32,64](1,32):normal" and entries["mask"] == "bool[3]"
    assert entries["labels"] == "i64[5]:0..8|-100" and entries["w"] == "f32[64]:uniform"
    assert entries["options.k"] == "2" and entries["options.bias"] == "f32[3]:uniform"
    assert (
        entries["eps"] == "1e-05" and entries["dtype"] == "torch.float16" and "mode" not in entries
    )
    assert found.left_out == {"options.call": "builtin_function_or_method"}
    (tmp_path / "call.json").write_text(json.dumps(record_of("layers:norm", found.inputs)))
    assert (
        parse_inputs([recorded_text(tmp_path / "call.json")])[0]
        == parse_inputs([found.inputs.text()])[0]
    )


def test_a_recorded_call_is_a_set_of_inputs(tmp_path: Path) -> None:
    """A size that is changed to a name is a symbol."""
    document = record_of("layers:Layer", record(written(tmp_path), "layers:Layer", ()).inputs)
    document["inputs"]["q"]["shape"][0] = "B"
    (tmp_path / "call.json").write_text(json.dumps(document))
    text = recorded_text(tmp_path / "call.json")
    reference = load_reference(Asked(str(tmp_path / "layers.py"), "Layer", (text,)))
    assert reference.tensors == ("q", "weight") and reference.examples[0].family.declared == ("B",)


@pytest.mark.parametrize(
    ("function", "number", "words"),
    [
        ("absent", 1, "defines no 'absent' at its top level"),
        ("layers:absent", 1, "there is no absent in the module"),
        ("nowhere_at_all:f", 1, "the module nowhere_at_all cannot be imported"),
        ("own", 2, "x has dtype float64, which the referee does not judge"),
        ("layers:norm", 2, "layers:norm was called 1 times, not 2"),
    ],
)
def test_why_nothing_is_recorded(tmp_path: Path, function: str, number: int, words: str) -> None:
    with pytest.raises(UnusableReference) as refused:
        record(written(tmp_path), function, (), number)
    assert words in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is no recorded call: JSONDecodeError"),
        ("[]", "its schema is not kmint.call/1"),
        (
            '{"schema": "kmint.call/1", "inputs": {"x": {"dtype": "f99", "shape": [3]}}}',
            "expected one of the dtypes",
        ),
        ('{"schema": "kmint.call/1", "inputs": {"x": 3}}', "an input is an object"),
        ('{"schema": "kmint.call/1", "inputs": {"x": {"dtype": "f32"}}}', "KeyError: 'shape'"),
        ("[" * 100_000, "is no recorded call: RecursionError"),
    ],
)
def test_a_file_that_is_no_recorded_call_is_refused(
    tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "call.json").write_text(content)
    with pytest.raises((RecordError, UnusableReference)) as refused:
        recorded_text(tmp_path / "call.json")
    assert words in str(refused.value) and "\n" not in str(refused.value)
