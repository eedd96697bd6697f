"""Host code that could tell a trace from a real call, in the screen's eyes."""

from __future__ import annotations

import math

import pytest

from referee.reading.screen import screen

KERNEL = """
@triton.jit
def _k(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=offs < n), mask=offs < n)


def run(x):
    %s
    out = torch.empty_like(x)
    _k[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""
REFUSED = {
    'text = f"{x}"': "formatted string",
    "text = str(x)": "`str`",
    "text = str([x])": "`str`",
    "texts = list(map(repr, [x]))": "`repr`",
    'text = "%s" % (x,)': "`%`",
    'text = "{}".format(x)': "`.format`",
    'assert __name__ != "candidate"': "`__name__`",
    "same = x.device is x.device": "`is`",
    "k = _k; seen = len(k.device_caches)": "`.device_caches`",
    "kinds = list(map(type, [x]))": "`type`",
    'made = type("T", (torch.Tensor,), {})': "`type`",
    "made = type(torch.Tensor)": "`type`",
    "plain = isinstance(x, (kind := str))": "`str`",
    "raise ValueError(where := __name__)": "`__name__`",
    'raise ValueError(f"{(text := str(x))}")': "`str`",
    "raise ValueError(triton.cdiv(1, str(x)))": "`str`",
    "import warnings\n    kept = []\n    warnings.warn(f'{sorted([str(x)], key=kept.append)}')": "`str`",
    "raise ValueError(f'{sorted([0], key=lambda size: str(x))}')": "`str`",
    "names = sorted(str(kind) for kind in (x, x))": "`str`",
    "raise ValueError([0 for size in [repr(x)]])": "`repr`",
}
ALLOWED = (
    'assert x.is_cuda, f"{x.shape} is on {x.device}"',
    'if x.dim() != 2:\n        raise ValueError("%s has %d dimensions" % (type(x), x.dim()))',
    "name = str(x.dtype)",
    "half = x.dtype is torch.float16",
    "plain = x is None or isinstance(x, str)",
    "same = x.dtype is x.dtype",
    "odd = x.numel() % 2",
    'import warnings\n    warnings.warn(f"{x.shape} is small: {type(x)}")',
    'import logging\n    logging.getLogger(__name__).info("%s", type(x))',
    'if x.dim() != 2:\n        raise ValueError(f"{x.dtype} {type(x).__name__} {list(map(str, x.shape))}")',
    'if x.dim() != 2:\n        raise ValueError(f"not one of {sorted(str(kind) for kind in (x.dtype, torch.float16))}")',
    'if x.dim() != 2:\n        raise ValueError(", ".join(sorted(map(str, {x.dtype, torch.float16}))))',
    'if x.dim() != 2:\n        raise ValueError(", ".join(repr(size) for size in x.shape) + "{}".format(str(x)))',
    "plain = type(x) == torch.Tensor or isinstance(x, (str, int)) or isinstance(x, type)",
)


@pytest.mark.parametrize("line", REFUSED)
def test_what_tells_a_trace_from_a_call_is_refused(line: str) -> None:
    _, rejection = screen(KERNEL % line)
    assert rejection is not None and rejection.guard in ("vocabulary", "state") and REFUSED[line] in rejection.reason


@pytest.mark.parametrize("line", ALLOWED)
def test_messages_dtypes_and_numbers_pass(line: str) -> None:
    _, rejection = screen(KERNEL % line)
    assert rejection is None


LOGGER = "import logging\nlogger = logging.getLogger(__name__)\n"
OWN_LOG = """
class Log:
    def __init__(self):
        self.text = ""

    def info(self, text):
        self.text = text

"""
# What stands at the top level, and a line of `run`.
BESIDE_A_LOG = {
    "its name": (LOGGER, "real = logger.name"),
    "its name by getattr": (LOGGER, 'real = getattr(logger, "name")'),
    "the logger by another name": (LOGGER, "other = logger"),
    "the logger handed on": (LOGGER, "list(map(run, [logger]))"),
    "a walrus": (LOGGER, 'logger.debug("%s", (real := __name__))'),
    "a function of the file": (LOGGER + "def keep(text):\n    return text\n", 'logger.debug("%s", keep(repr(x)))'),
    "a log of the file": (OWN_LOG, "Log().info(__name__)"),
    "a text for a log of the file": (OWN_LOG, "Log().info(repr(x))"),
    "a logger bound twice": (LOGGER + OWN_LOG + "logger = Log()\n", "logger.info(repr(x))"),
    "a logger in a function": (LOGGER + OWN_LOG, "logger = Log(); logger.info(repr(x))"),
    "a module in a function": (LOGGER + OWN_LOG, "logging = Log(); logging.info(repr(x))"),
    "a module imported and bound": (OWN_LOG, "import logging; logging = Log(); logging.info(repr(x))"),
    "a logger in a class": (LOGGER + OWN_LOG + "class A:\n    logger = Log()\n    text = logger.info(__name__)\n", "a = A()"),
    "a module in a class": (LOGGER + OWN_LOG + "class A:\n    logging = Log()\n    text = logging.info(__name__)\n", "a = A()"),
    "a method of the class Logger": (LOGGER + OWN_LOG, "logging.Logger.info(Log(), __name__)"),
    "getLogger of the file": ("class A:\n    def getLogger(self, text):\n        return text\n", "real = A().getLogger(__name__)"),
    "isinstance of the file": ("def isinstance(value, kind):\n    return kind(value)\n", "real = isinstance(x, str)"),
    "where a log goes": (LOGGER + OWN_LOG + "logging.basicConfig(stream=Log())\n", "logger.info(x.shape)"),
}


@pytest.mark.parametrize("name", BESIDE_A_LOG)
def test_what_is_logged_does_not_come_back(name: str) -> None:
    before, line = BESIDE_A_LOG[name]
    _, rejection = screen("import torch, triton\nimport triton.language as tl\n" + before + KERNEL % line)
    assert rejection is not None and rejection.guard in ("vocabulary", "imports"), rejection


@pytest.mark.parametrize("line", ['logger.info("%s", x.shape)', 'logger.warning(f"{type(x)}")', "logger.setLevel(logging.INFO)"])
def test_a_logger_of_the_library_logs(line: str) -> None:
    _, rejection = screen(LOGGER + "logging.basicConfig(level=logging.INFO)\n" + KERNEL % line)
    assert rejection is None


STRATEGY = "from enum import Enum\nclass Strategy(Enum):\n    ONE_PASS = 1\n    TWO_PASS = 2\n"


def test_members_of_enumerations_of_the_file_may_be_compared_by_is() -> None:
    line = "how = Strategy.ONE_PASS if x.numel() > 9 else Strategy.TWO_PASS\n    one = how is Strategy.ONE_PASS"
    assert screen(STRATEGY + KERNEL % line)[1] is None
    _, rejection = screen(STRATEGY + KERNEL % "Strategy = x; one = x.dtype is Strategy.device")
    assert rejection is not None and "`is`" in rejection.reason


IN_ORDER = (
    "first = list({torch.float16, x.dtype})[0]",
    "first, *rest = {1, 2}",
    "first = next(iter(frozenset((1, 2))))",
    "first = max(ALSO, key=lambda a: 0)",
    "first = set(x.shape).pop()",
    "kinds = set(x.shape)\n    for size in kinds:\n        pass",
    "kinds = set(x.shape) | {1}\n    sizes = [size for size in kinds]",
    "sizes = tuple({'a': 1}.keys() - {'b'})",
    "sizes = sorted({1, 2}, key=lambda a: 0)",
    "make = set\n    first = list(make((1, 2)))[0]",
    "pair = (ALSO, 1)\n    first = list(pair[0])[0]",
    "first = (lambda: {1, 2})()",
    "sizes = list(A.kinds)",
    "sizes = list(ALSO if x.dim() else ())",
    "make = ALSO.union\n    first = list(make())[0]",
    "make = A.kinds.copy\n    first = list(make())[0]",
    "makes = (ALSO.difference, 1)\n    first = list(makes[0]())[0]",
)
AS_SETS = (
    "assert x.dtype in {torch.float16, torch.float32} and x.dtype in ALSO | {torch.bfloat16}",
    "if x.dtype not in ALSO:\n        raise ValueError(f'{x.dtype} is none of {ALSO}')",
    "seen = set()\n    seen.update([x.dtype])\n    plain = len(seen) == 1 and bool(seen)",
    "same = len({a for a in x.shape}) == 1 or set(x.shape) <= {1, 2} or not ALSO",
    "sizes = tuple(sorted(set(x.shape)))\n    for size in sizes:\n        pass",
    "plain = isinstance(x.shape, (set, list)) or x.dtype in A.kinds or ALSO.isdisjoint(A.kinds)",
    "ALSO = [1, 2]\n    first = ALSO[0]",
    "seen = set()\n    note = seen.update\n    note([1])\n    plain = x.dtype in ALSO.union(seen).copy()",
)
SETS = "ALSO = frozenset({torch.float16, torch.float32})\n\n\nclass A:\n    kinds = {torch.float16}\n\n"


@pytest.mark.parametrize("line", IN_ORDER)
def test_sets_are_not_gone_through(line: str) -> None:
    _, rejection = screen(SETS + KERNEL % line)
    assert rejection is not None and "the order of a set is not fixed" in rejection.reason


@pytest.mark.parametrize("line", AS_SETS)
def test_sets_are_asked_what_they_hold(line: str) -> None:
    assert screen(SETS + KERNEL % line)[1] is None


OF_ONE_PYTHON = {
    "compared with a later one": ("import sys\n", "new = sys.version_info >= (3, 12)"),
    "compared for equality": ("import sys\n", "new = sys.version_info == (3, 11)"),
    "by its place": ("import sys\n", "new = sys.version_info[1] > 11"),
    "by its name": ("import sys\n", "new = sys.version_info.minor > 11"),
    "by getattr": ("import sys\n", "new = getattr(sys, 'version_info')[1]"),
    "by another name": ("from sys import version_info as v\n", "new = v[1]"),
    "kept": ("import sys\nV = sys.version_info\n", "new = V.minor"),
    "in a method": ("import sys\nclass A:\n    sys = 1\n    def of(self):\n        return sys.version_info[1]\n", "new = A().of()"),
    "at the top level": ("import sys\nNEW = 2 if sys.version_info > (3, 12) else 1\n", "new = NEW"),
    "a later function": ("import math\n", "new = math.sumprod([1], [1])"),
    "a later function by its name": ("from math import fma\n", "new = fma(1, 1, 1)"),
    "a later function, tried": ("try:\n    import math\n    S = math.sumprod\nexcept AttributeError:\n    S = None\n", "new = S"),
    "a later tool, tried": ("try:\n    import itertools\n    B = itertools.batched\nexcept AttributeError:\n    B = None\n", "new = B"),
    "a property of a class": ("class A:\n    n = classmethod(property(lambda cls: 1))\n", "new = A.n"),
}


@pytest.mark.parametrize("name", OF_ONE_PYTHON)
def test_what_some_pythons_have_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("sumprod", "fma"):
        monkeypatch.setattr(math, word, math.dist, raising=False)
    before, line = OF_ONE_PYTHON[name]
    _, rejection = screen(before + KERNEL % line)
    assert rejection is not None and rejection.guard == "vocabulary", rejection


OF_EVERY_PYTHON = {
    "an older one": ("import sys\n", "assert sys.version_info >= (3, 9), f'{sys.version_info}'"),
    "this one": ("from sys import version_info\n", "old = version_info < (3, 11)"),
    "functions": ("import math\nfrom math import ceil as c\n", "n = c(math.log2(x.numel())) + math.prod(x.shape) * math.pi.real"),
    "tried": ("try:\n    import itertools\n    P = itertools.product\nexcept AttributeError:\n    P = None\n", "both = list(P((1, 2)))"),
    "a method of a class": ("class A:\n    @classmethod\n    def n(cls):\n        return 1\n", "n = A.n()"),
    "a variable": ("import sys\nclass B:\n    version_info = 1\n", "sys = B(); n = sys.version_info"),
}


@pytest.mark.parametrize("name", OF_EVERY_PYTHON)
def test_what_every_python_has_passes(name: str) -> None:
    before, line = OF_EVERY_PYTHON[name]
    rejection = screen(before + KERNEL % line)[1]
    assert rejection is None, rejection


SHAPE_ERROR = 'class ShapeError(ValueError):\n    """It does not fit."""\n\n\nclass RowError(ShapeError):\n    pass\n'
NO_ERRORS = {
    "bound twice": (SHAPE_ERROR + "def ShapeError(text):\n    return ValueError(text)\n", "raise ShapeError(f'{x}')"),
    "a variable": (SHAPE_ERROR, "ShapeError = x.new_zeros\n    raise ShapeError(f'{x}')"),
    "in a class": (SHAPE_ERROR + "class A:\n    ShapeError = len\n    size = 1\n", "raise ShapeError(f'{x}')"),
    "outside a raise": (SHAPE_ERROR, "error = ShapeError(f'{x}')"),
    "kept": (SHAPE_ERROR, "raise ShapeError(text := f'{x}')"),
}


@pytest.mark.parametrize("name", NO_ERRORS)
def test_other_things_than_errors_are_given_no_message(name: str) -> None:
    before, line = NO_ERRORS[name]
    assert screen(before + KERNEL % line)[1] is not None


@pytest.mark.parametrize("error", ["ShapeError", "RowError"])
def test_an_error_of_the_file_takes_a_message(error: str) -> None:
    rejection = screen(SHAPE_ERROR + KERNEL % f"if x.dim() != 2:\n        raise {error}(f'{{x.shape}} {{type(x).__name__}}')")[1]
    assert rejection is None, rejection


TYPING = "import typing\nfrom typing import Annotated, Callable, Dict, List, Optional, Union\n"
ALIASES = (
    "Key = Union[int, str]",
    "Key = typing.Union[str, typing.List[bytes]]",
    "Key = Union[str, torch.dtype]",
    "Key: typing.TypeAlias = Dict[str, Optional[str]]",
    "Key = Callable[[str, int], bytes]",
)
NO_ALIASES = (
    "Key = Union[str]",
    "Key = Union[str, str]",
    "Key = Union[str, Union[str]]",
    "Key = Annotated[str, 1]",
    "Key = Union[int, str([1])]",
    "Key = {str: 1}[str]",
    "class A:\n    Union = {str: str}\n    Key = Union[int, str]",
)


@pytest.mark.parametrize("alias", ALIASES)
def test_a_name_for_a_type_may_have_texts_in_it(alias: str) -> None:
    rejection = screen(TYPING + alias + "\n" + KERNEL % "n = 1")[1]
    assert rejection is None, rejection


@pytest.mark.parametrize("alias", NO_ALIASES)
def test_what_could_be_called_for_a_text_may_not(alias: str) -> None:
    _, rejection = screen(TYPING + alias + "\n" + KERNEL % "n = 1")
    assert rejection is not None and "`str` shows" in rejection.reason, rejection


NOT_EVERYWHERE = (
    "g = 2\n    assert (g := 1) and x.dim()",
    "sizes = [1]\n    assert sizes.pop()",
    "sizes = [1]\n    assert first(sizes)",
    "sizes = [1]\n    assert all(map(first, [sizes]))",
    "sizes = [1]\n    take = lambda: sizes.append(1)\n    assert not take()",
    "sizes = iter((1, 2))\n    assert 1 in sizes",
    "sizes = iter((1, 2))\n    assert next(sizes)",
    "assert x.zero_() is not None",
    "assert launches(x)",
    "note = Note()\n    assert note.count() or True",
    "import collections\n    sizes = collections.defaultdict(int)\n    assert not sizes[1]",
    "from itertools import count as c\n    sizes: object = c(1)\n    also = sizes\n    assert 1 in also",
)
EVERYWHERE = (
    "assert fits(x) and x.is_contiguous() and x.dtype in (torch.float16, torch.float32)",
    "assert isinstance(x, torch.Tensor) and all(size > 0 for size in x.shape), f'{x.shape}'",
    "note = Note()\n    assert note.value == 1 and note.fits(x)",
)
BESIDE = """
def first(sizes):
    return sizes.pop()


def launches(x):
    _k[(1,)](x, x, 1, BLOCK=1)
    return True


def fits(x):
    size = x.numel()
    size += 1
    return size < 2**31


class Note:
    def __init__(self):
        self.value = 1

    def fits(self, x):
        return x.dim() > self.value

    def count(self):
        self.value += 1

"""


@pytest.mark.parametrize("line", NOT_EVERYWHERE)
def test_asserts_change_nothing(line: str) -> None:
    _, rejection = screen(BESIDE + KERNEL % line)
    assert rejection is not None and "python -O" in rejection.reason, rejection


@pytest.mark.parametrize("line", EVERYWHERE)
def test_asserts_may_ask(line: str) -> None:
    assert screen(BESIDE + KERNEL % line)[1] is None


def test_a_log_fills_nothing() -> None:
    line = 'import collections, logging\n    sizes = collections.defaultdict(int)\n    logging.getLogger("a").info("%(a)d", sizes)'
    _, rejection = screen(KERNEL % line)
    assert rejection is not None and "python -O" in rejection.reason, rejection
