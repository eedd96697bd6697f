"""What a file may do without: which modules are traced as if they were there, and as if they were not."""

from __future__ import annotations

import ast
import builtins
import sys
from pathlib import Path

import pytest

from referee.reading.optional_imports import optional_imports, pretended_modules
from tests.referee.trace.test_attribute_guard import trace

TRY = "try:\n    {}\n    HAS = True\nexcept ImportError:\n    HAS = False\n"
OPTIONAL = ["numpy", "numpy.linalg", "typing_extensions", "sqlite3", "winreg", "tkinter", "curses", "zlib", "resource", "distutils.core"]


@pytest.mark.parametrize("module", OPTIONAL)
def test_nothing_depends_on_what_torch_can_do_without(module: str, tmp_path: Path) -> None:
    before = TRY.format(f"import {module}")
    rejection = trace(before, "real = HAS", tmp_path)[1].get("rejection")
    assert isinstance(rejection, dict) and (rejection["guard"], "can be imported" in rejection["reason"]) == ("state", True), rejection
    assert "plans" in trace(before, "real = False", tmp_path)[1]


@pytest.mark.parametrize("name", ["numpy", "typing_extensions"])
def test_nor_on_what_a_version_of_it_has(name: str, tmp_path: Path) -> None:
    for there in ("no_such_name", "float32" if name == "numpy" else "Any"):
        rejection = trace(TRY.format(f"from {name} import {there}"), "real = HAS", tmp_path)[1].get("rejection")
        assert isinstance(rejection, dict) and "can be imported" in rejection["reason"], rejection


@pytest.mark.parametrize(
    "name", ["itertools import batched", "math import sumprod", "unittest import makeSuite", "sys import monitoring", "typing import Self"]
)
def test_nor_on_what_some_pythons_have(name: str, tmp_path: Path) -> None:
    rejection = trace(TRY.format(f"from {name}"), "real = HAS", tmp_path)[1].get("rejection")
    module = name.partition(" ")[0]
    assert isinstance(rejection, dict) and f"`{module}` can be imported" in rejection["reason"], rejection
    assert "plans" in trace(TRY.format(f"from {name}"), "real = False", tmp_path)[1]


PASSES = {
    "plain": ("import numpy as np\n", "real = int(np.prod((1, 2))) == 1"),
    "where it is there": (TRY.format("import numpy as np"), "real = (int(np.prod((1, 2))) if HAS else 2) == 1"),
    "by its name": (TRY.format("from numpy import prod"), "real = (int(prod((1, 2))) if HAS else 2) == 1"),
    "after an error": (
        "try:\n    import numpy as np\nexcept ImportError:\n    raise RuntimeError('none')\n",
        "real = np.prod((1, 2)) == 1",
    ),
    "tried and needed": (TRY.format("import numpy") + "import numpy as np\n", "real = np.prod((1, 2)) == 1"),
    "instead of another": (
        "try:\n    from typing import Self\nexcept ImportError:\n    from typing_extensions import Self\n",
        "real = False",
    ),
    "what every Python has": (TRY.format("import ctypes, os, subprocess, urllib.parse"), "real = not HAS"),
    "by name": (TRY.format("from itertools import product; from math import prod; from importlib import metadata"), "real = not HAS"),
    "needed as well": ("from shutil import which\n" + TRY.format("from shutil import which"), "real = not HAS"),
    "and some have": ("try:\n    import readline, zlib, sqlite3.dbapi2\nexcept ImportError:\n    pass\n", "real = False"),
}


@pytest.mark.parametrize("name", PASSES)
def test_honest_imports_pass(name: str, tmp_path: Path) -> None:
    assert "plans" in trace(*PASSES[name], tmp_path)[1], trace(*PASSES[name], tmp_path)[1]


def test_modules_are_as_they_were_afterwards() -> None:
    import numpy

    optional = optional_imports(ast.parse(TRY.format("import numpy, sqlite3.dbapi2")))
    assert optional.modules == {"numpy", "sqlite3", "sqlite3.dbapi2"}
    before = {name: sys.modules.get(name) for name in optional.modules}
    with pretended_modules(optional, optional.all):
        import numpy as there

        assert there is not numpy and there.prod is numpy.prod
    with pretended_modules(optional, frozenset()), pytest.raises(ImportError):
        import numpy as there
    assert before == {name: sys.modules.get(name) for name in optional.modules} and sys.modules["numpy"] is numpy


def test_what_is_tried_is_gone_for_those_who_import_its_name() -> None:
    import shutil

    optional = optional_imports(ast.parse(TRY.format("from shutil import which")))
    usual = builtins.__import__
    with pretended_modules(optional, frozenset()):
        with pytest.raises(ImportError):
            from shutil import which
        from shutil import copy

        assert copy is shutil.copy and sys.modules["shutil"] is shutil and shutil.which is not None
    with pretended_modules(optional, optional.all):
        from shutil import which

        assert which is shutil.which
    assert builtins.__import__ is usual
