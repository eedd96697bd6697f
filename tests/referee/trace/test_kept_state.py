"""What a file keeps between calls, and how hidden places are found."""

from __future__ import annotations

import abc
import array
import contextvars
import datetime
import decimal
import functools
import io
import itertools
import mmap
import operator
import random
import re
import sys
import threading
import weakref
from collections import OrderedDict, deque
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from referee.tracing.kept_state import KeptObject, changed, contents, kept


def module(**names: Any) -> dict[str, Any]:
    made = ModuleType("kernel_under_test")
    vars(made).update(names)
    return vars(made)


class Counter:
    __module__ = "kernel_under_test"

    def __init__(self) -> None:
        self.n = 0


class Slotted:
    __module__ = "kernel_under_test"
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Hidden(Counter):
    """Binds the names that a walk could ask for."""

    __module__ = "torch.kept"
    __dict__ = {}
    __class__ = int  # type: ignore[assignment]


class Base(abc.ABC):
    __module__ = "kernel_under_test"

    @abc.abstractmethod
    def size(self) -> int:
        """Of no use here."""


class Layer(torch.autograd.Function):
    __module__ = "kernel_under_test"


class Number(int):
    __module__ = "kernel_under_test"


class Emptied(dict[str, Any]):
    __module__ = "kernel_under_test"

    def items(self) -> Any:
        """Shows nothing."""
        return ()


def with_default(values: list[int] = []) -> None:  # noqa: B006
    """Keeps a list in its default."""


def closed_over(values: list[int]) -> Any:
    return lambda: values


HELD: list[int] = []
COUNTED = Counter()
HIDDEN = Hidden()
BYTES = bytearray(4)
VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=0)
OBJECTS: Any = np.empty(1, dtype=object)
OBJECTS[0] = []


class Generator(random.Random):
    """A generator of the file's, which hides what it has come to."""

    __module__ = "kernel_under_test"

    def getstate(self) -> Any:
        """Nothing."""


CHANGES: dict[str, tuple[Any, Any]] = {
    "a list": ([], lambda value: value.append(1)),
    "a list in a dict in a tuple": (({"a": []},), lambda value: value[0]["a"].append(1)),
    "a deque": (deque(), lambda value: value.append(1)),
    "a number of another type": ({"a": 1}, lambda value: value.update(a=True)),
    "an object": (Counter(), lambda value: setattr(value, "n", 1)),
    "an object with slots": (Slotted(), lambda value: setattr(value, "n", 1)),
    "a function's default": (with_default, lambda value: value.__defaults__[0].append(1)),
    "a function's attribute": (with_default, lambda value: setattr(value, "seen", 1)),
    "a closure": (closed_over(HELD), lambda value: HELD.append(1)),
    "a partial's argument": (functools.partial(max, [0]), lambda value: value.args[0].append(1)),
    "a bound method": (COUNTED.__init__, lambda value: setattr(COUNTED, "n", COUNTED.n + 1)),  # type: ignore[misc]
    "a partial of a bound method": (functools.partial(HELD.append), lambda value: HELD.append(1)),
    "a list's method": (HELD.append, lambda value: value(1)),
    "a dict's method": ({}.setdefault, lambda value: value(1)),
    "a static method of a class": (type("C", (), {"f": staticmethod(HELD.append)}), lambda value: value.f(1)),
    "a slice": (slice(HELD), lambda value: HELD.append(1)),
    "an object that hides": (HIDDEN, lambda value: object.__setattr__(value, "n", HIDDEN.n + 1)),
    "a class that hides": (Hidden, lambda value: setattr(value, "seen", 1)),
    "a number with an attribute": (Number(1), lambda value: setattr(value, "n", 1)),
    "a dict that hides": (Emptied(), lambda value: value.update(a=1)),
    "the order of a dict": (OrderedDict(a=1, b=1), lambda value: value.move_to_end("a")),
    "what an uncached function closes over": (functools.lru_cache(maxsize=0)(closed_over(HELD)), lambda value: HELD.append(1)),
    "the same behind another name": (
        functools.update_wrapper(functools.lru_cache(maxsize=0)(closed_over(HELD)), len),
        lambda value: HELD.append(1),
    ),
    "a torch module": (torch.nn.Identity(), lambda value: value.eval()),
    "an array of numbers": (np.floor([0.0]), lambda value: value.__setitem__(0, 1)),
    "its shape": (np.zeros((2, 3)), lambda value: value.resize((3, 2), refcheck=False)),
    "a view": ([np.zeros(4)[1:3]], lambda value: value[0].base.__setitem__(2, 1)),
    "an array of objects": (OBJECTS, lambda value: value[0].append(1)),
    "a bytearray": (bytearray(2), lambda value: value.__setitem__(0, 1)),
    "a view of bytes": (memoryview(BYTES), lambda value: BYTES.__setitem__(0, 1)),
    "an array of Python's": (array.array("d", [0.0]), lambda value: value.__setitem__(0, 1)),
    "a random generator": (random.Random(1), lambda value: value.random()),
    "a function of one": (random.Random(1).random, lambda value: value()),
    "one that hides": (Generator(1), lambda value: value.random()),
    "a decimal context": (decimal.Context(), lambda value: setattr(value, "prec", 3)),
    "a context variable": (VARIABLE, lambda value: value.set(1)),
    "a weak reference": (weakref.ref(COUNTED), lambda value: setattr(COUNTED, "n", COUNTED.n + 1)),
    "a weak dict": (weakref.WeakValueDictionary(), lambda value: value.update(a=COUNTED)),
    "a lock": (threading.Lock(), lambda value: value.acquire()),
    "what a thread keeps": (threading.local(), lambda value: setattr(value, "n", 1)),
    "an error's argument": (ValueError([]), lambda value: value.args[0].append(1)),
    "an operator's argument": (operator.methodcaller("f", HELD), lambda value: HELD.append(1)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_anywhere_below_a_name_shows(name: str) -> None:
    value, change = CHANGES[name]
    file = module(KEPT=value, other=[1, float("nan")])
    before = kept(file, "kernel_under_test")
    assert changed(before, kept(file, "kernel_under_test")) is None
    change(value)
    assert changed(before, kept(file, "kernel_under_test")) == "KEPT"


def test_new_and_rebound_names_show() -> None:
    file = module(a=1)
    before = kept(file, "kernel_under_test")
    file["b"] = 2
    assert changed(before, kept(file, "kernel_under_test")) == "b"
    file["a"] = 3
    assert changed(before, kept(file, "kernel_under_test")) == "a"


def test_a_warning_leaves_nothing_behind() -> None:
    file = module(a=1)
    before = kept(file, "kernel_under_test")
    file["__warningregistry__"] = {"version": 1, ("text", UserWarning, 3): True}
    assert changed(before, kept(file, "kernel_under_test")) is None


@pytest.mark.parametrize("value", [iter([1]), itertools.count(), (i for i in range(3)), [zip([1], [2], strict=True)], {"a": reversed([1])}])
def test_iterators_are_refused_wherever_they_are(value: Any) -> None:
    with pytest.raises(KeptObject, match="iterator"):
        kept(module(KEPT=value), "kernel_under_test")


CLOSED: dict[str, tuple[Any, str]] = {
    "a tensor": ([torch.zeros(1)], "a tensor is kept"),
    "a parameter": (torch.nn.Linear(1, 1), "a tensor is kept"),
    "a generator": (torch.Generator(), "torch.Generator"),
    "a weak proxy": (weakref.proxy(COUNTED), "iterator"),
    "mapped memory": (mmap.mmap(-1, 1), "cannot be read"),
    "a text in memory": (io.StringIO(), "iterator"),
    "bytes in memory": (io.BytesIO(), "iterator"),
    "a large array": (np.zeros(1 << 20), "keep fewer"),
    "many bytes": (bytearray(1 << 21), "keep fewer"),
}


@pytest.mark.parametrize("name", CLOSED)
def test_what_cannot_be_read_is_refused(name: str) -> None:
    value, says = CLOSED[name]
    with pytest.raises(KeptObject, match=says):
        kept(module(KEPT=value), "kernel_under_test")


def test_what_a_launch_is_given_may_hold_tensors() -> None:
    given = [torch.zeros(1)]
    before = contents(given, "kernel_under_test")
    assert contents(given, "kernel_under_test") == before
    given[0] = torch.zeros(1)
    assert contents(given, "kernel_under_test") != before


def test_what_does_not_change_may_be_kept() -> None:
    values = (np.float32(1), np.dtype("int8"), np.floor, torch.float16, torch.device("cuda"), torch.finfo(torch.float16), torch.strided)
    others = (re.compile("a"), datetime.timedelta(1), decimal.Decimal(1), object(), NotImplemented, int | None, torch.Size([1]))
    file = module(values=values, others=others, members=(int.real, str.join, sys.flags, sys.version_info), randint=random.randint)
    assert changed(kept(file, "kernel_under_test"), kept(file, "kernel_under_test")) is None


def test_nothing_hides_behind_many_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("referee.tracing.kept_state.MOST_OBJECTS", 100)
    with pytest.raises(KeptObject, match="keep fewer"):
        kept(module(KEPT=([[] for _ in range(100)], Counter())), "kernel_under_test")


@pytest.mark.parametrize("size", [None, 128])
def test_a_cached_function_may_remember_what_cannot_change_only(size: int | None) -> None:
    numbers = functools.lru_cache(maxsize=size)(lambda n: (n, "text", None))
    lists = functools.lru_cache(maxsize=size)(lambda n: (n, [n]))
    file = module(numbers=numbers, lists=lists)
    before = kept(file, "kernel_under_test")
    numbers(1)
    numbers(2)
    assert changed(before, kept(file, "kernel_under_test")) is None
    lists(1)
    with pytest.raises(KeptObject, match="list"):
        kept(file, "kernel_under_test")
    for value in (np.zeros(1), bytearray(1), random.Random(1), torch.zeros(1), {}, {"block": 1024}):
        other = functools.lru_cache(maxsize=size)(lambda value=value: value)
        other()
        with pytest.raises(KeptObject, match="a cached function keeps a"):
            kept(module(other=other), "kernel_under_test")


def test_what_a_library_keeps_of_itself_is_not_the_files() -> None:
    size = functools.lru_cache(maxsize=4)(lambda: abc.ABC)
    file = module(apply=Layer.apply, Base=Base, empty=torch.empty, partial=functools.partial(max), size=size)
    before = kept(file, "kernel_under_test")
    isinstance(1, Base)
    size()
    assert changed(before, kept(file, "kernel_under_test")) is None
