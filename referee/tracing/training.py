"""What torch says of the call that is running, in every way that it could: of gradients, autocast, compilation, streams.

A file that asks gets one answer in the first call of `run`, and every other in further calls, which must launch the same. Limits: of
dtypes some are tried, and of what is told of streams the handle only. Runs in the trace worker only.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, TypeVar

import torch

from referee.tracing.violation import Violations

Answer = TypeVar("Answer")
# For some questions, which of their answers is given; 0, the usual one, to those that are not in it.
Mixture = frozenset[tuple[str, int]]

USUAL: Mixture = frozenset()
# To every question another answer, whether or not the file asks it, and another default dtype.
OTHERWISE: Mixture = frozenset({("everything", 1)})

# Of CUDA's own streams beside the null stream: that of all threads, and that of each.
_NAMED_STREAMS = (1, 2)
_AUTOCAST_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_STREAM = "torch.cuda.current_stream"
_GRADIENTS = "torch.is_grad_enabled"
# Where torch asks for the sake of a module, which the file may have told to.
FOR_A_MODULE = ("torch.nn.modules.module", "torch.utils.hooks")
# There torch itself would do something else.
_NOT_FOR_TORCH = ("torch.jit.is_scripting", "torch.jit.is_tracing")


class _Handle(int):
    """The handle of a stream, an address, of which nobody can try all values: it is equal to others or not, and nothing more."""

    violations: Violations


def _refused(handle: _Handle, *others: object) -> Any:
    raise handle.violations.add("state", "the handle of a stream is an address; compare it with == only")


for _name in """
    add and divmod floordiv lshift mod mul or pow radd rand rdivmod rfloordiv rlshift rmod rmul ror rpow rrshift rshift rsub rtruediv rxor
    sub truediv xor abs ceil float floor format ge gt index int invert le lt neg pos repr round str trunc
""".split():
    setattr(_Handle, f"__{_name}__", _refused)


class Training:
    """What torch says of the call that is running: the answers of the mixture `on`.

    `asked` are the questions that the file has asked, with how many answers each has beside the usual one, and `questions` is how often it
    has asked any; `asked_kinds` are the inputs, by their numbers, of which it has asked what kind of tensor they are. `given` are the
    tensors that `run` got: of others nobody can say here whether they would require gradients.
    """

    def __init__(self, violations: Violations) -> None:
        self._violations = violations
        self.on = USUAL
        self.asked: dict[str, int] = {}
        self.questions = 0
        self.asked_kinds: set[int] = set()
        self.given: Sequence[Any] = ()
        self._handle = 0

    def begin(self, on: Mixture, given: Sequence[Any]) -> None:
        """Answer by this mixture from now on, for a call with these tensors."""
        self.on, self.given = on, given
        # An address that differs from call to call.
        self._handle = _Handle(secrets.randbits(47) | 1 << 40)
        self._handle.violations = self._violations

    def end(self) -> None:
        """The call is over."""
        self.on = USUAL

    def ask_kind(self, tensor: Any) -> bool:
        """Note that the file may learn what kind of tensor this is; whether `run` got it. Any other may have been made of any input."""
        found = [number for number, one in enumerate(self.given) if one is tensor]
        self.asked_kinds.update(found or range(len(self.given)))
        return bool(found)

    def answer(self, question: str, answers: Sequence[Answer], caller: str) -> Answer:
        """One of the answers, the usual one first, to a module of this name; most of torch's own ask all the time, which is not noted."""
        if is_torch(caller) and question in _NOT_FOR_TORCH:
            return answers[0]
        if not is_torch(caller) or caller in FOR_A_MODULE:
            self.asked[question] = len(answers) - 1
            self.questions += 1
        return answers[min(self._which(question), len(answers) - 1)]

    @property
    def gradients(self) -> bool:
        """Whether the call that is running is to run with gradients."""
        return self._which(_GRADIENTS) > 0

    def _which(self, question: str) -> int:
        return 1 if self.on == OTHERWISE else dict(self.on).get(question, 0)

    def stream(self, asking: str = "") -> int:
        """The handle of the current stream, for a module of this name, or for the function that called the caller."""
        return self.answer(_STREAM, (0, self._handle, *_NAMED_STREAMS), asking or caller(2))

    def mixtures(self) -> list[Mixture]:
        """Every mixture of answers to what was asked: the usual one first, and last the one that has none of the usual answers."""
        each = ([(question, number) for number in range(others + 1)] for question, others in sorted(self.asked.items()))
        return [frozenset(one for one in some if one[1]) for some in product(*each)]

    def answers(self) -> Iterator[tuple[Any, str, Callable[..., Any]]]:
        """Where torch tells of training, and a function that answers for it. What torch would refuse is refused."""
        for module, prefix, name in (
            (torch.compiler, "torch.compiler", "is_compiling"),
            (torch.jit, "torch.jit", "is_scripting"),
            (torch.jit, "torch.jit", "is_tracing"),
        ):
            yield module, name, self._yes_or_no(f"{prefix}.{name}", getattr(module, name))
        yield torch, "is_grad_enabled", self._of_gradients(torch.is_grad_enabled)
        yield torch, "is_autocast_enabled", self._of_device("torch.is_autocast_enabled", torch.is_autocast_enabled, (True,))
        yield torch, "get_autocast_dtype", self._of_device("torch.get_autocast_dtype", torch.get_autocast_dtype, _AUTOCAST_DTYPES)

    def _yes_or_no(self, question: str, original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.answer(question, (original(*args, **kwargs), True), caller(1))

    def _of_gradients(self, original: Callable[[], bool]) -> Callable[[], bool]:
        """Torch's own answer, because functions and contexts of torch's change it within a call."""

        def answered() -> bool:
            self.answer(_GRADIENTS, (False, True), caller(1))
            return original()

        return answered

    def _of_device(self, question: str, original: Callable[..., Any], answers: Sequence[Any]) -> Callable[..., Any]:
        """A function of a device's type, that of GPUs where none is given, to which these are answers."""

        def answered(*args: Any, **kwargs: Any) -> Any:
            usual = original(*args, **kwargs)
            device = torch.device(next(iter((*args, *kwargs.values())), "cuda")).type
            # Two at least, for the other one may be the usual one.
            others = [one for one in answers if one != usual] or [usual]
            return self.answer(f"{question}('{device}')", [usual, *others], caller(1))

        return answered


def is_torch(module: str) -> bool:
    """Whether that is the name of one of torch's modules."""
    return module.partition(".")[0] == "torch"


def caller(depth: int) -> str:
    """The name of the module of the function that asks (depth 0), of its caller (1), and so on."""
    return str(sys._getframe(depth + 1).f_globals.get("__name__", ""))
