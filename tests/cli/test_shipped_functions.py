"""An operation that is a function, through the commands: no --reference is needed anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import tiny_models
from tests.cli.runner import kmint

pytestmark = pytest.mark.usefixtures("warm")


def test_it_is_found_and_shown() -> None:
    """By other words than its name, with its arguments, results and cases."""
    found = kmint("ops", "--search", "silu and mul", "--json").document["ops"]
    assert "swiglu_packed" in [op["name"] for op in found]
    shown = kmint("ops", "show", "add_rmsnorm_both")
    assert shown.code == 0, shown.err
    assert (
        "run(x: Tensor[M, N], residual: Tensor[M, N], w: Tensor[N]) -> tuple[Tensor, Tensor]"
        in shown.out
    )
    assert "example0-" in shown.out and "fused add rmsnorm residual, prenorm" in shown.out


def test_from_its_name_to_a_project(tmp_path: Path) -> None:
    """Minted by the template, saved and verified by the name alone."""
    smith = tiny_models.scripted(tmp_path / "smith.gguf", [b"```python\nno kernel\n```"])
    options = ["--drafts", "1", "--seed", "1", "--max-tokens", "256", "--json"]
    done = kmint("mint", "swiglu_packed", "--model", str(smith), *options)
    assert done.code == 0, done.out + done.err
    best = f"{done.document['history_id']}.{done.document['best']}"
    saved = kmint("save", best, "--to", str(tmp_path / "kernels"), "--json")
    assert saved.code == 0, saved.err
    file = tmp_path / "kernels" / "swiglu_packed.py"
    assert "def swiglu_packed(x: Tensor)" in file.read_text(encoding="utf-8")
    receipt = json.loads(file.with_suffix(".receipt.json").read_text(encoding="utf-8"))
    assert (
        receipt["op"] == "swiglu_packed"
        and receipt["reference"]["name"] == "gates.py:swiglu_packed"
    )
    held = kmint("verify", str(file), "--json")
    assert held.code == 0, held.out + held.err
