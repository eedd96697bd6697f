"""What a plan calls a kernel is the kernel that the file would run: other objects of its name, changed constants, changed words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl

from referee.target import Target
from referee.tracing.snapshot import Snapshot
from referee.tracing.tracer import trace_source
from tests.referee.trace.bad import ALLOCATE, LAUNCH, body
from tests.referee.trace.good import GOOD, rows

CELL = rows("x", shape=(3, 100))

KERNELS = """
import functools
from triton.language import exp2 as e2

SCALE = tl.constexpr(1.0)
BASE = 2
STEP = tl.constexpr(BASE * 2)


@triton.jit
def scaled(v, by: tl.constexpr = STEP):
    return v * SCALE * by


@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = scaled(tl.load(x + i, mask=i < n))
    tl.store(y + i, e2(tl.sum(v, axis=0)) + min(0, 0), mask=i < n)


@triton.jit
def zeros(x, y, n, BLOCK: tl.constexpr):
    tl.store(y + tl.arange(0, BLOCK), 0.0, mask=tl.arange(0, BLOCK) < n)


def get(value, *names):
    for name in names:
        value = getattr(value, name)
    return value
"""
OTHER = "def other(x, y, n, BLOCK: tl.constexpr):\n    zeros(x, y, n, BLOCK)\n\nsetattr(other, '__name__', 'copy')\n"
RUN = (ALLOCATE, LAUNCH, "return y")
JIT = "get(triton, 'j' 'it')"


def answer(source: str, tmp_path: Path) -> dict[str, Any]:
    return trace_source(source, str(tmp_path / "candidate.py"), Target(), [(CELL.inputs, 1)] * 2)


LAUNCHED = {
    "made_at_import": (f"{OTHER}bad = {JIT}(other)\n", (ALLOCATE, LAUNCH.replace("copy[", "bad["), "return y")),
    "made_in_run": (OTHER, (ALLOCATE, LAUNCH.replace("copy[", f"{JIT}(other)["), "return y")),
    "tuned": (
        f"{OTHER}bad = triton.autotune([triton.Config({{}}, num_warps=w) for w in (4, 8)], key=[])({JIT}(other))\n",
        (ALLOCATE, LAUNCH.replace("copy[", "bad["), "return y"),
    ),
    "of_the_same_function": (f"bad = {JIT}(copy.fn)\n", (ALLOCATE, LAUNCH.replace("copy[", "bad["), "return y")),
    "renamed": ("", (ALLOCATE, "setattr(zeros, '__name__', 'copy')", LAUNCH.replace("copy[", "zeros["), "return y")),
    "swapped_in_run": (OTHER, (ALLOCATE, f"globals()['copy'] = {JIT}(other)", LAUNCH, "return y")),
    "not_of_the_top": (
        f"{OTHER}bad = {JIT}(other)\nsetattr(bad, '__name__', 'bad')\n",
        (ALLOCATE, LAUNCH.replace("copy[", "bad["), "return y"),
    ),
    "after_an_honest_one": (f"{OTHER}bad = {JIT}(other)\n", (ALLOCATE, LAUNCH, LAUNCH.replace("copy[", "bad["), "return y")),
}


@pytest.mark.parametrize("name", LAUNCHED)
def test_another_object_of_a_kernels_name_is_not_launched(name: str, tmp_path: Path) -> None:
    before, run = LAUNCHED[name]
    told = answer(KERNELS + body(*run, before=before), tmp_path)
    assert (told["rejection"]["guard"], "not the one which the file binds" in told["rejection"]["reason"]) == ("launch_feature", True), told


CHANGES = {
    "constant_again": "get(SCALE, '__init__')(0.0)",
    "constants_value": "functools.wraps(tl.constexpr(0.0), assigned=('value',), updated=())(SCALE)",
    "constants_type": "setattr(SCALE, 'value', 1)",
    "bound_again": "globals().update(SCALE=tl.constexpr(0.0))",
    "by_the_kernels_names": "get(copy, 'fn', '__globals__').update(SCALE=tl.constexpr(0.0))",
    "what_a_constant_is_made_of": "get(STEP, '__init__')(2)",
    "alias": "globals().update(e2=tl.exp)",
    "language": "globals().update(tl=functools)",
    "builtin": "globals().update(min=tl.max)",
    "helper": "globals().update(scaled=zeros)",
    "default": "setattr(get(scaled, 'fn'), '__defaults__', (3,))",
    "signature": "setattr(copy, 'signature', copy.signature.replace(parameters=list(copy.signature.parameters.values())[::-1]))",
    "parameters": "copy.params.reverse()",
    "annotation": "copy.params[2].__dict__['is_constexpr'] = True",
    "debug": "setattr(copy, 'debug', True)",
    "text": "setattr(copy, '_src', 'def copy(x, y, n, BLOCK: tl.constexpr):\\n    pass\\n')",
    "function": "setattr(copy, 'fn', zeros.fn)",
    "names": "setattr(copy, '__globals__', {})",
    "hook": "copy.pre_run_hooks.append(int)",
}
WORDS = {
    "word": "setattr(tl, 'load', tl.store)",
    "word_of_a_part": "setattr(tl.math, 'exp2', tl.math.exp)",
    "code_of_a_word": "functools.wraps(lambda *a: 0, assigned=('__code__',), updated=())(get(tl.load, '__wrapped__'))",
    "attributes_of_a_word": "functools.wraps(get)(tl.exp2)",
    "word_in_triton": "get(tl.sum, '__dict__').update(_src='def sum(): pass')",
    "method": "setattr(tl.tensor, '__mul__', tl.tensor.__add__)",
}


@pytest.fixture
def words() -> Any:
    """What the tests change, put back."""
    load = tl.load.__wrapped__
    before = [(tl, "load"), (tl.math, "exp2"), (load, "__code__"), (tl.tensor, "__mul__")]
    kept = [(owner, name, getattr(owner, name)) for owner, name in before]
    dicts = [(found, dict(vars(found))) for found in (tl.exp2, load, tl.sum)]
    yield
    for owner, name, value in kept:
        setattr(owner, name, value)
    for found, inside in dicts:
        vars(found).clear()
        vars(found).update(inside)


@pytest.mark.parametrize("name", CHANGES | WORDS)
def test_what_kernels_are_made_of_is_as_written_after_the_import(name: str, tmp_path: Path, words: None) -> None:
    told = answer(KERNELS + body(*RUN, before=f"{(CHANGES | WORDS)[name]}\n"), tmp_path)
    assert "rejection" in told and (told["rejection"]["guard"], told["rejection"]["cell"]) == ("module_level", None), told


@pytest.mark.parametrize("name", CHANGES | WORDS)
def test_what_kernels_are_made_of_is_as_written_at_a_launch(name: str, tmp_path: Path, words: None) -> None:
    told = answer(KERNELS + body(ALLOCATE, (CHANGES | WORDS)[name], LAUNCH, "return y"), tmp_path)
    assert "rejection" in told and told["rejection"]["guard"] in ("state", "launch_feature"), told


def test_a_constant_that_is_put_back_was_changed(tmp_path: Path) -> None:
    told = answer(KERNELS + body(ALLOCATE, "SCALE.__init__(0.0)", LAUNCH, "SCALE.__init__(1.0)", "return y"), tmp_path)
    assert told["rejection"] == {"cell": 0, "guard": "state", "reason": told["rejection"]["reason"]}
    assert "`SCALE`" in told["rejection"]["reason"]


def test_a_word_that_is_changed_after_the_last_launch_is_found(tmp_path: Path, words: None) -> None:
    told = answer(KERNELS + body(ALLOCATE, LAUNCH, "setattr(tl.tensor, '__mul__', tl.tensor.__add__)", "return y"), tmp_path)
    assert told["rejection"]["guard"] == "state" and "tensor" in told["rejection"]["reason"]


HONEST = {
    "plain": "",
    "names_for_kernels": "table = {'copy': copy}\nalso = copy\n",
    "tuned_under_another_name": "fast = triton.autotune([triton.Config({}, num_warps=4)], key=['n'])(copy)\n",
    "as_a_key": "table = {copy: 1, scaled: 2}\n",
    "constant_in_host_code": "rows = [SCALE.value] * BASE\n",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_files_are_as_written(name: str, tmp_path: Path) -> None:
    launch = LAUNCH.replace("copy[", "fast[") if "fast" in HONEST[name] else LAUNCH
    assert "plans" in answer(KERNELS + body(ALLOCATE, launch, "return y", before=HONEST[name]), tmp_path)


VERSIONS = """
if triton.__version__ >= "9":
    from triton.language.math import rsqrt
else:
    from triton.language.extra.libdevice import rsqrt


if True:
    @triton.jit
    def k(x, y, a=rsqrt if False else None):
        '''Text
      that stands less deep.'''
        pass
"""


@pytest.mark.parametrize("version", ["0", "9"])
def test_kernels_in_choices_between_versions_are_as_written(version: str, tmp_path: Path) -> None:
    choice = VERSIONS.replace('"9"', f'"{version}"').replace("a=rsqrt if False else None", "a").replace("pass", "tl.store(y, rsqrt(a))")
    source = choice + KERNELS.replace("import functools", "import functools\r") + body(*RUN)
    assert "plans" in answer(source, tmp_path)


def test_nothing_is_left_of_the_cut(tmp_path: Path) -> None:
    assert "plans" in answer(GOOD["whole_row"].source, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["candidate.py"]


def test_a_snapshot_follows_what_functions_are_made_of() -> None:
    class Words:
        __module__ = "triton.made_up"
        value = 1

        @property
        def plain(self) -> int:
            return 1

    root = Words()
    snapshot = Snapshot([("root", root), ("class", Words)])
    assert snapshot.changed() is None
    root.extra = 2  # type: ignore[attr-defined]
    assert snapshot.changed() == "root"
    del root.extra  # type: ignore[attr-defined]
    Words.value = 2
    assert snapshot.changed() == "class.value"
    Words.value = 1
    assert snapshot.changed() is None
    assert triton.language is tl


def test_a_renewed_snapshot_compares_with_what_objects_hold_by_then() -> None:
    class Words:
        __module__ = "triton.made_up"
        value = 1

    first = Snapshot([("class", Words)])
    Words.value = 2
    renewed = first.renewed()
    assert (first.changed(), renewed.changed()) == ("class.value", None)
    Words.value = 1
    assert (first.changed(), renewed.changed()) == (None, "class.value")
