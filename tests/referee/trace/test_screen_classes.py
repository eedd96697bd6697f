"""Classes, contexts and optional imports in the screen's eyes: what could hide a failure, or make what is not in the text."""

from __future__ import annotations

from pathlib import Path

import pytest

from referee.reading.screen import screen
from referee.target import Target
from referee.tracing.tracer import trace_source
from tests.referee.trace.bad import ALLOCATE, COPY, LAUNCH, body
from tests.referee.trace.good import rows

ENUM = "from enum import Enum\n"


def candidate(before: str, *lines: str) -> str:
    """A candidate that is right, with these definitions and these lines in `run`."""
    return COPY + body(*lines, ALLOCATE, LAUNCH, "return y", before=before)


def exits(*lines: str, decorator: str = "") -> str:
    """A class whose `__exit__` has these lines."""
    method = "".join(f"        {line}\n" for line in lines)
    above = f"    {decorator}\n" if decorator else ""
    return f"class Timer:\n    def __enter__(self):\n        return self\n{above}    def __exit__(self, *error):\n{method}\n"


REFUSED = {
    "del": ("state", "__del__", "class A:\n    def __del__(self):\n        pass\n"),
    "del_assigned": ("statement", "__del__", "def f(a):\n    pass\nclass A:\n    __del__ = f\n"),
    "exit": ("try_except", "__exit__", exits("return True")),
    "exit_sometimes": ("try_except", "__exit__", exits("if error[0] is None:", "    return", "return len(error)")),
    "exit_decorated": ("try_except", "__exit__", "def yes(f):\n    return lambda *a: True\n" + exits("pass", decorator="@yes")),
    "exit_assigned": ("statement", "__exit__", "class A:\n    __exit__ = lambda self, *error: True\n"),
    "exit_of_an_enumeration": ("vocabulary", "enum.Enum", 'import enum\nE = enum.Enum("E", {"__exit__": max, "A": 1})\n'),
    "enumeration_to_call": ("statement", "without members", ENUM + "class E(Enum):\n    pass\n"),
    "enumeration_of_a_property": ("statement", "without members", ENUM + "class E(Enum):\n    A = property(len)\n"),
    "enumeration_ignored": ("statement", "_ignore_", ENUM + "class E(Enum):\n    _ignore_ = 'A'\n    A = 1\n"),
    "class_property": ("statement", "@classmethod", "class A:\n    @classmethod\n    @property\n    def n(cls):\n        return 1\n"),
    "metaclass": ("vocabulary", "abc.ABCMeta", 'import abc\nT = abc.ABCMeta("T", (torch.Tensor,), {})\n'),
    "operator_with_a_text": ("statement", "__radd__", "class A:\n    def __radd__(self, text):\n        return text\n"),
    "comparison": ("statement", "__eq__", "class A:\n    def __eq__(self, kind):\n        return kind('T', (), {})\n"),
    "own_attributes": ("statement", "`__dict__`", "class A:\n    __dict__ = {}\n"),
    "own_module": ("statement", "`__module__`", 'class A:\n    __module__: str = "torch"\n'),
    "by_walrus": ("statement", "`__module__`", 'class A:\n    def f(self, a=(__module__ := "torch")):\n        pass\n'),
    "for_torch": ("statement", "`__torch_function__`", "class A:\n    def __torch_function__(self, *given):\n        return 1\n"),
    "text_of_it": ("statement", "`__str__`", "class A:\n    def __str__(self):\n        self.n = 2\n        return ''\n"),
    "base": ("statement", "Enum, NamedTuple, ABC", "class A(Exception):\n    pass\n"),
    "text": ("statement", "inherits from `str`", "class A(str):\n    pass\n"),
    "another_text": ("statement", "inherits from `str`", ENUM + "str = torch.Tensor\nclass A(str, Enum):\n    B = 1\n"),
    "generic_that_runs": ("vocabulary", "`eval`", "from typing import Generic\nclass A(Generic[eval('1')]):\n    pass\n"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_classes_that_hide_something_are_refused(name: str) -> None:
    guard, says, before = REFUSED[name]
    _, rejection = screen(candidate(before))
    assert rejection is not None and (rejection.guard, says in rejection.reason) == (guard, True), rejection


@pytest.mark.parametrize(
    "before",
    [
        exits("self.done = 1"),
        "class A:\n    __slots__ = ('n',)\n    def __init__(self):\n        self.n = 1\n    def __call__(self):\n        return self.n\n",
        exits("if error:", "    return False", "return None"),
        ENUM + 'class Act(str, Enum):\n    RELU = "relu"\n',
        ENUM + "from enum import auto\nclass Act(int, Enum):\n    RELU = auto()\n",
        ENUM + "class Kind(Enum):\n    HALF = torch.float16\n",
        'from typing import Generic, TypeVar\nT = TypeVar("T")\nclass A(Generic[T]):\n    pass\n',
        "from abc import ABC\nfrom typing import NamedTuple\nclass A(ABC):\n    pass\nclass B(NamedTuple):\n    n: int\n",
    ],
)
def test_ordinary_classes_pass(before: str) -> None:
    assert screen(candidate(before))[1] is None


CONTEXT = "import contextlib\n@contextlib.contextmanager\ndef guard():\n"
# Asked by the library what to do with an exception, it says that all is well.
NO_GENERATOR = "class A:\n    def __next__(self):\n        return 1\n    def throw(self, *error):\n        return next(iter(()))\n"


@pytest.mark.parametrize(
    "before",
    [
        CONTEXT + "    try:\n        yield\n    except Exception:\n        pass\n",
        NO_GENERATOR + CONTEXT + "    return A()\n",
        NO_GENERATOR + CONTEXT + "    made = lambda: (yield)\n    return A()\n",
        NO_GENERATOR + "def d(f):\n    return A\n" + CONTEXT.replace("def guard", "@d\ndef guard") + "    yield\n",
    ],
)
def test_a_context_of_the_library_swallows_nothing(before: str) -> None:
    _, rejection = screen(candidate(before, "with guard():", "    pass"))
    assert rejection is not None and (rejection.guard == "try_except" or "`__next__`" in rejection.reason), rejection


def test_a_context_of_the_library_passes() -> None:
    assert screen(candidate(CONTEXT + "    with torch.no_grad():\n        yield\n", "with guard():", "    pass"))[1] is None


HELD = [
    ("", "ctx = torch.cuda.device(x.device)", "with ctx, Timer():", "    pass"),
    ("import contextlib\n", "ctx = torch.no_grad() if x.shape[0] else contextlib.nullcontext()", "with ctx:", "    pass"),
    ("", "if x.shape[0]:", "    device = torch.cuda.device(0)", "else:", "    device = torch.device(0)", "with device:", "    pass"),
    ("", "def inner():", "    ctx = torch.no_grad()", "    with ctx:", "        return 1", "ctx = inner()"),
]
NOT_HELD = [
    ("", "ctx = torch.cuda.device(x.device)", "ctx = Timer()", "with ctx:", "    pass"),
    ("", "ctx = torch.cuda.device(x.device) if x.shape[0] else Timer()", "with ctx:", "    pass"),
    ("", "ctx = Timer", "with ctx():", "    pass"),
    ("", "ctx = torch.no_grad()", "for ctx in (Timer(),):", "    with ctx:", "        pass"),
    ("", "ctx = torch.no_grad()", "(ctx := Timer())", "with ctx:", "    pass"),
    ("", "def inner(ctx):", "    with ctx:", "        return 1", "ctx = torch.no_grad()", "inner(Timer())"),
    ("", "ctx = torch.no_grad()", "def inner(ctx=Timer()):", "    ctx = torch.no_grad()", "    with ctx:", "        return 1", "inner()"),
    ("", "ctx = torch.no_grad()", "if x.shape[0]:", "    from dataclasses import MISSING as ctx", "with ctx:", "    pass"),
    ("", "a, ctx = torch.no_grad(), Timer()", "with ctx:", "    pass"),
    # Entered twice, it goes back to what it set itself.
    ("", "ctx = torch.no_grad()", "with ctx:", "    with ctx:", "        pass"),
    ("", "ctx = torch.no_grad()", "with ctx, ctx:", "    pass"),
    ("", "ctx = torch.no_grad()", "def inner(n):", "    with ctx:", "        return n and inner(n - 1)", "inner(1)"),
    ("", "ctx = other = torch.no_grad()", "with ctx:", "    with other:", "        pass"),
    ("class A:\n    def no_grad(self):\n        return Timer()\ndef c(torch):\n    ctx = torch.no_grad()\n    with ctx: pass\n", "c(A())"),
]


@pytest.mark.parametrize("lines", HELD)
def test_a_context_may_be_chosen_before(lines: tuple[str, ...]) -> None:
    assert screen(candidate(exits("pass") + lines[0], *lines[1:]))[1] is None


@pytest.mark.parametrize("lines", NOT_HELD)
def test_a_context_in_a_variable_is_to_be_written_out(lines: tuple[str, ...]) -> None:
    _, rejection = screen(candidate(exits("pass") + lines[0], *lines[1:]))
    assert rejection is not None and ("write the context out" in rejection.reason or rejection.guard == "imports"), rejection


@pytest.mark.parametrize(
    "line", ["torch.set_grad_enabled(False)", "mode = torch.set_grad_enabled", "made = [torch.set_grad_enabled(True)]"]
)
def test_gradients_are_switched_in_a_with_only(line: str) -> None:
    _, rejection = screen(candidate("", line))
    assert rejection is not None and rejection.guard == "state" and "torch.set_grad_enabled" in rejection.reason
    assert screen(candidate("", "with torch.set_grad_enabled(False):", "    pass"))[1] is None
    assert screen(candidate("@torch.set_grad_enabled(False)\ndef f():\n    pass\n", "f()"))[1] is None


FLASH = "try:\n    import flash_attn\n    FLASH = flash_attn.__version__\nexcept ImportError:\n    FLASH = None\n"


def test_the_version_of_an_optional_module_may_be_kept_and_not_read(tmp_path: Path) -> None:
    source = candidate(FLASH)
    assert screen(source)[1] is None
    cell = rows("x", shape=(3, 100))
    told = trace_source(source, str(tmp_path / "candidate.py"), Target(), [(cell.inputs, len(cell.outputs))])
    assert "plans" in told, told
    for before, line in (
        (FLASH, "new = FLASH"),
        (FLASH + "class A:\n    pass\nFLASH *= A()\n", ""),
        (FLASH, "new = flash_attn.__version__"),
    ):
        assert screen(candidate(before, line or "pass"))[1] is not None


def tried(statement: str, name: str, error: str = "ImportError") -> str:
    """An optional import, and a name that says whether it went well."""
    return f"try:\n    {statement}\n    {name} = True\nexcept {error}:\n    {name} = False\n"


@pytest.mark.parametrize("second", ["import another", "import apex.part", "from apex import part", "from apex.part import it"])
def test_which_optional_modules_there_are_changes_nothing(second: str, tmp_path: Path) -> None:
    source = candidate(tried("import apex", "A") + tried(second, "B"), "if A and not B:", "    return x")
    told = trace_source(source, str(tmp_path / "candidate.py"), Target(), [(rows("x", shape=(3, 100)).inputs, 1)])
    assert told["rejection"]["guard"] == "state" and "`apex`" in told["rejection"]["reason"], told


def test_optional_modules_that_change_nothing_pass(tmp_path: Path) -> None:
    before = tried("import apex", "A") + tried("from apex.part import it, that", "B", "ModuleNotFoundError") + tried("import another", "C")
    source = candidate(before) + '\nif __name__ == "__main__":\n' + "".join(f"    import module_{n}\n" for n in range(20))
    told = trace_source(source, str(tmp_path / "candidate.py"), Target(), [(rows("x", shape=(3, 100)).inputs, 1)])
    assert "plans" in told, told


def test_too_many_optional_modules_are_refused(tmp_path: Path) -> None:
    source = candidate("".join(tried(f"import module_{n}", "A") for n in range(13)))
    told = trace_source(source, str(tmp_path / "candidate.py"), Target(), [(rows("x", shape=(3, 100)).inputs, 1)])
    assert "at most 12" in told["rejection"]["reason"], told


ADVICE = {
    "Triton handles alignment": ("", "n = x.data_ptr() % 16"),
    "by a `key` stays in it; sort a tuple": ("SIZES = sorted({32, 64}, key=lambda size: -size)\n", "n = 1"),
    "stops the import": ("if not torch.cuda.is_available():\n    raise RuntimeError('no GPU')\n", "n = 1"),
    "`__repr__` has a meaning of its own": ("class A:\n    def __repr__(self):\n        return f'{self}'\n", "n = A()"),
}


@pytest.mark.parametrize("says", ADVICE)
def test_honest_habits_are_told_what_to_write(says: str) -> None:
    _, rejection = screen(candidate(*ADVICE[says]))
    assert rejection is not None and says in rejection.reason, rejection
