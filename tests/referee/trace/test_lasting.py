"""What a file changes with functions of the standard library, and whether that is its own."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from referee.reading.screen import screen
from tests.referee.trace.test_attribute_guard import trace

REFUSED = {
    "errors": ("import warnings\n", "warnings.simplefilter('error')", "outlives the call"),
    "always": ("import warnings\n", "warnings.simplefilter('always')", "outlives the call"),
    "by keyword": ("from warnings import simplefilter\n", "simplefilter(action='error')", "outlives the call"),
    "some errors": ("import warnings\n", "warnings.filterwarnings('error', message='small')", "outlives the call"),
    "by another name": ("import warnings\n", "change = warnings.simplefilter\n    change('error')", "outlives the call"),
    "while it is imported": ("import warnings\nwarnings.simplefilter('error')\n", "", "outlives the call"),
    "torch's class": ("import dataclasses\n", "dataclasses.dataclass(torch.Tensor)", "is not the file's"),
    "the library's": ("import dataclasses\nimport logging\n", "dataclasses.dataclass(logging.Logger)", "is not the file's"),
    "with options": ("from dataclasses import dataclass\n", "dataclass(eq=False)(torch.Tensor)", "is not the file's"),
    "a copy": ("import copy\n", "copy.deepcopy(x)", "write `.clone()`"),
    "a copy of a part": ("import copy\n", "copy.deepcopy(x[:, :1])", "write `.clone()`"),
    "a copy in a list": ("import copy\n", "copy.deepcopy([x])", "write `.clone()`"),
    "a copied field": (
        "import dataclasses\n@dataclasses.dataclass\nclass D:\n    x: object\n",
        "dataclasses.asdict(D(x))",
        "write `.clone()`",
    ),
    "a shallow copy": ("import copy\n", "copy.copy(x)", "pass tensors to the kernel"),
}
ALLOWED = {
    "ignored": ("import warnings\nwarnings.simplefilter('ignore')\n", "warnings.simplefilter('default')"),
    "some ignored": ("import warnings\n", "warnings.filterwarnings('ignore', message='small', category=UserWarning)"),
    "once": ("from warnings import simplefilter\n", "simplefilter(action='once')"),
    "data classes": (
        "from dataclasses import dataclass\n@dataclass\nclass A:\n    n: int\n@dataclass(frozen=True)\nclass B:\n    n: int = 1\n",
        "A(B().n)",
    ),
    "abstract": (
        "import abc\nclass A(abc.ABC):\n    @property\n    @abc.abstractmethod\n    def n(self):\n        ...\n"
        "    @staticmethod\n    @abc.abstractmethod\n    def of():\n        ...\n"
        "class B(A):\n    n = 1\n    @staticmethod\n    def of():\n        return 1\n",
        "B().of()",
    ),
    "configurations": ("import copy\n", "copy.deepcopy([triton.Config({'BLOCK': 128})])[0].num_warps"),
    "numbers": ("import copy\n", "copy.copy([1, 2]) and copy.deepcopy({'shape': x.shape, 'dtype': x.dtype})"),
}


@pytest.fixture(autouse=True)
def _filters() -> Iterator[None]:
    with warnings.catch_warnings():
        yield


@pytest.mark.parametrize("name", REFUSED)
def test_only_what_is_its_own_is_changed(name: str, tmp_path: Path) -> None:
    before, line, says = REFUSED[name]
    source, told = trace(before, f"{line}\n    real = 0", tmp_path)
    rejection = told.get("rejection")
    assert isinstance(rejection, dict) and says in rejection["reason"], told
    assert screen(source)[1] is None


@pytest.mark.parametrize("name", ALLOWED)
def test_what_harms_nobody_is_allowed(name: str, tmp_path: Path) -> None:
    before, line = ALLOWED[name]
    source, told = trace(before, f"{line}\n    real = 0", tmp_path)
    assert "plans" in told, told
    assert screen(source)[1] is None


def test_afterwards_they_are_pythons_own_again(tmp_path: Path) -> None:
    before = warnings.simplefilter, dataclasses.dataclass
    trace("", "real = 0", tmp_path)
    assert (warnings.simplefilter, dataclasses.dataclass) == before
