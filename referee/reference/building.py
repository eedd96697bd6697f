"""Builds a `Reference` from a callable and its example calls: arguments, sizes and outputs.

Raises UnusableReference for a reference that cannot be judged.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from referee.ops.promote import in_float64
from referee.ops.torch_compat import as_tuple
from referee.reference.answers import Answers, answers_of
from referee.reference.batches import is_batch
from referee.reference.call import Call
from referee.reference.choice import Chosen
from referee.reference.example_inputs import input_of, named_shapes, whole_size
from referee.reference.exploring import explored
from referee.reference.family import symbolic
from referee.reference.inputs import InputSet, Number, Sizes, TensorInput
from referee.reference.kinds import Kind, kind_of_example
from referee.reference.layout import output_spec
from referee.reference.observed import Observed, observe
from referee.reference.reference import Argument, Example, Fixed, Function, Reference
from referee.reference.refusals import refuse_dynamic, refuse_random, same_values
from referee.reference.scalars import Judged, judged_values
from referee.reference.slots import Slot, is_number, slots_of
from referee.reference.unusable import UnusableReference, one_line
from referee.reference.user_file import UserFile
from referee.reference.user_torch import CudaIsCpu, cuda_is_missing, default_dtype, nothing_compiled

_MOVED = "its cuda tensors are on the CPU, because no GPU can be used here"


@dataclass
class Builder:
    """The parts of a reference found in the file. Methods raise UnusableReference."""

    chosen: Chosen
    names: Sequence[str]
    calls: Sequence[tuple[str, Call]]
    inputs: Sequence[InputSet]
    fixed: dict[str, object]
    file: UserFile
    dtype: torch.dtype
    notes: list[str]
    moved: CudaIsCpu
    slots: list[Slot] = field(init=False)
    state: list[Tensor] = field(init=False)
    answers: Answers | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.slots = slots_of([call for _, call in self.calls], self.fixed)
        self.state = list(self.chosen.state.values())
        if not self.state and not any(slot.kind == "tensor" for slot in self.slots):
            raise UnusableReference("every example needs at least one tensor")

    def reference(self, title: str, source: str, summary: str) -> Reference:
        """The reference under this title."""
        examples = [self._example(number) for number in range(len(self.calls))]
        first = examples[0]
        tensors = first.tensors()
        changed = self._check(first, tensors)
        numbers = [slot for slot in self.slots if slot.kind == "number"]
        judged = {slot.name: self._judged_values(slot, tensors) for slot in numbers}
        for slot in numbers:
            if (why := judged[slot.name].why) and len(set(slot.values)) > 1:
                fault = f"the examples differ in {slot.name}, which is fixed for good"
                raise UnusableReference(f"{fault}: {why}")
        arguments = self._arguments(judged)
        kept = [slot for slot in numbers if not judged[slot.name].why]
        examples = [
            replace(one, scalars=tuple(slot.values[number] for slot in kept))
            for number, one in enumerate(examples)
        ]
        if self.moved.moved:
            self.notes.append(_MOVED)
        assert self.answers is not None
        return Reference(
            title=title,
            name=self.chosen.name,
            function=self._function(judged),
            timed=self._timed(judged),
            arguments=arguments,
            fixed=self._fixed(judged),
            outputs=self.answers.names,
            mutates=tuple(name for name, is_output in changed.items() if not is_output),
            changes=tuple(name for name, is_output in changed.items() if is_output),
            examples=tuple(examples),
            notes=tuple(self.notes),
            source=source,
            summary=summary,
            path=self.file.path,
            files=self.file.files,
            digest=self.file.digest,
            default_dtype=self.dtype,
        )

    def _arguments(self, judged: dict[str, Judged]) -> tuple[Argument, ...]:
        found = []
        for slot in self.slots:
            if slot.kind == "tensor":
                found.append(Argument(name=slot.name, kind="tensor"))
            elif slot.kind == "number" and not judged[slot.name].why:
                parameter = self.chosen.signature.parameters.get(slot.name)
                default = parameter.default if parameter and is_number(parameter.default) else None
                values = judged[slot.name].values
                found.append(
                    Argument(name=slot.name, kind="scalar", values=values, default=default)
                )
        state = self.names[len(self.slots) :]
        return (*found, *(Argument(name=name, kind="tensor", origin="state") for name in state))

    def _fixed(self, judged: dict[str, Judged]) -> tuple[Fixed, ...]:
        found = []
        for slot in self.slots:
            why = judged[slot.name].why if slot.kind == "number" else slot.why
            # Defaults that the user does not mention belong to the function.
            if why and (slot.given or slot.kind == "number"):
                found.append(Fixed(slot.name, slot.values[0], why))
        return tuple(found)

    def _function(self, judged: dict[str, Judged]) -> Function:
        slots, call = self.slots, self.calls[0][1]
        is_argument = self._are_arguments(judged)
        usual = [slot.values[0] for slot in slots]

        def function(*arguments: Any) -> Any:
            given = iter(arguments)
            slots = zip(is_argument, usual, strict=True)
            leaves = [next(given) if one else value for one, value in slots]
            return self._evaluate(call, leaves, list(given))

        return function

    def _are_arguments(self, judged: dict[str, Judged]) -> list[bool]:
        return [
            slot.kind == "tensor" or (slot.kind == "number" and not judged[slot.name].why)
            for slot in self.slots
        ]

    def _timed(self, judged: dict[str, Judged]) -> Function:
        """The reference with as little code around the user's as possible, if its call is plain."""
        call, answers = self.calls[0][1], self.answers
        assert answers is not None
        kinds = {parameter.kind for parameter in call.signature.parameters.values()}
        leaves = all(count == 1 and tree.is_leaf() for _, tree, count in call.trees)
        starred = kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
        if not leaves or answers.positions or starred:
            return self._function(judged)
        parameters = enumerate(call.signature.parameters[name] for name, _, _ in call.trees)
        named = [(number, one.name) for number, one in parameters if one.kind is one.KEYWORD_ONLY]
        positional = len(call.trees) - len(named)
        called = self.chosen.timed or self.chosen.call
        usual = [slot.values[0] for slot in self.slots]
        places = [number for number, one in enumerate(self._are_arguments(judged)) if one]
        given = len(places)

        def timed(*arguments: Any) -> Any:
            values = list(usual)
            for place, argument in zip(places, arguments[:given], strict=True):
                values[place] = argument
            keywords = {name: values[place] for place, name in named}
            result = called(*arguments[given:], *values[:positional], **keywords)
            if isinstance(result, Tensor):
                return result
            if isinstance(result, tuple | list):
                found = tuple(one for one in result if isinstance(one, Tensor))
                return found if len(found) > 1 else found[0]
            return answers.of(result, values)

        return timed

    def _evaluate(self, call: Call, leaves: list[Any], state: list[Any]) -> Any:
        args, kwargs = call.arguments(leaves)
        with self._around():
            try:
                result = self.chosen.call(*state, *args, **kwargs)
            except SystemExit as error:
                fault = f"the reference ended the process: exit({error.code!r})"
                raise RuntimeError(fault) from error
        if self.answers is None:
            return result
        return self.answers.of(result, [*leaves, *state])

    @contextmanager
    def _around(self) -> Iterator[None]:
        """Set the default dtype, leave out compilers, and take the CPU for a missing GPU."""
        text = self.file.text
        with ExitStack() as stack:
            if self.dtype != torch.get_default_dtype():
                stack.enter_context(default_dtype(self.dtype))
            if "cuda" in text and cuda_is_missing():
                stack.enter_context(self.moved)
            if "compile" in text or "torch.jit" in text:
                stack.enter_context(nothing_compiled([]))
            yield

    def _of_tensors(self, example: int = 0, numbers: dict[str, Number] | None = None) -> Function:
        """The reference as a function of its tensors, with this example's other values."""
        call = self.calls[example][1]

        def function(*tensors: Tensor) -> Any:
            given = iter(tensors)
            leaves = [
                next(given)
                if slot.kind == "tensor"
                else (numbers or {}).get(slot.name, slot.values[example])
                for slot in self.slots
            ]
            return self._evaluate(call, leaves, list(given))

        return function

    def _example(self, number: int) -> Example:
        values = [slot.values[number] for slot in self.slots if slot.kind == "tensor"]
        if all(isinstance(value, Tensor) for value in values):
            return self._own_example(number, [value.detach() for value in values])
        text = self.inputs[number]
        parameters = self.chosen.signature.parameters
        sizes = {
            name: whole_size(name, one.values)
            for name, one in text.scalars.items()
            if name in text.symbols and name not in parameters
        }
        try:
            return self._with_state(number, values, sizes)
        except UnusableReference:
            dtypes = {value.dtype for value in values if "float" in value.dtype}
            if len(dtypes) != 1 or not self._cast_state(next(iter(dtypes))):
                raise
        return self._with_state(number, values, sizes)

    def _with_state(self, number: int, values: Sequence[TensorInput], sizes: Sizes) -> Example:
        inputs = [*values, *map(input_of, self.chosen.state, self.state)]
        kinds = (*(None for _ in values), *map(kind_of_example, self.state))
        return self._explored(number, inputs, kinds, None, sizes)

    def _cast_state(self, name: str) -> bool:
        """Give the module's parameters the dtype of the inputs, as `module.to(dtype)` does.

        Returns whether any parameter had another dtype.
        """
        dtype: torch.dtype = getattr(torch, name)
        floats = [tensor for tensor in self.state if tensor.is_floating_point()]
        others = [tensor for tensor in floats if tensor.dtype != dtype]
        if others:
            self.state = [one.to(dtype) if one.is_floating_point() else one for one in self.state]
            self.notes.append(f"the module's parameters are {name}, as the inputs are")
        return bool(others)

    def _own_example(self, number: int, tensors: list[Tensor]) -> Example:
        own = (*tensors, *self.state)
        names = [slot.name for slot in self.slots if slot.kind == "tensor"]
        inputs = list(map(input_of, [*names, *self.chosen.state], own))
        return self._explored(number, inputs, tuple(map(kind_of_example, own)), own, {})

    def _explored(
        self,
        number: int,
        inputs: Sequence[TensorInput],
        kinds: tuple[Kind | None, ...],
        own: tuple[Tensor, ...] | None,
        sizes: Sizes,
    ) -> Example:
        """The example with its sizes.

        Equal fixed sizes get separate symbols if the reference accepts different numbers for them.
        """
        families = [symbolic(inputs, apart=apart) for apart in (True, False)]
        first: UnusableReference | None = None
        for family in families[: 1 + (families[0] != families[1])]:
            example = Example(label=f"example{number}", family=family, kinds=kinds, own=own)
            try:
                found = explored(
                    family,
                    partial(self._trial, number, example),
                    partial(is_batch, self._of_tensors(number), example),
                    sizes,
                )
                return replace(example, family=found)
            except UnusableReference as error:
                first = first or error
        assert first is not None
        raise first

    def _trial(self, number: int, example: Example, sizes: Sizes) -> str:
        """Why the reference refuses the sizes, or "". The first success fixes the outputs."""
        try:
            tensors = example.tensors(sizes)
        except UnusableReference as error:
            return str(error)
        copies = [tensor.clone() for tensor in tensors]
        try:
            result = self._of_tensors(number)(*copies)
        except UnusableReference:
            raise
        except Exception as error:
            return f"the reference fails on {named_shapes(example, sizes)}: {one_line(error)}"
        if self.answers is None:
            names = [*(slot.name for slot in self.slots), *self.names[len(self.slots) :]]
            before, after = self._all_leaves(tensors), self._all_leaves(copies)
            self.answers = answers_of(result, names, before, after, self.notes)
        return ""

    def _check(self, example: Example, tensors: Sequence[Tensor]) -> dict[str, bool]:
        """The arguments that the reference changes, and whether they are outputs.

        Raises UnusableReference for random numbers and for shapes that depend on values.
        """
        function = self._of_tensors()
        copies = [tensor.clone() for tensor in tensors]
        with torch.random.fork_rng():
            torch.manual_seed(0)
            result, seen = observe(function, copies, self.file.path)
        found = as_tuple(result)
        assert self.answers is not None
        for name, out in zip(self.answers.names, found, strict=True):
            output_spec(name, out, tensors)
        refuse_random(function, tensors, found, seen)
        refuse_dynamic(function, example, found, seen)
        judged = {(out.data_ptr(), out.numel()) for out in found}
        arguments = [slot.name for slot in self.slots if slot.kind == "tensor"]
        arguments += self.names[len(self.slots) :]
        return {
            name: (copy.data_ptr(), copy.numel()) in judged
            for name, copy, tensor in zip(arguments, copies, tensors, strict=True)
            if not same_values(copy, tensor)
        }

    def _all_leaves(self, tensors: Sequence[Tensor]) -> list[Any]:
        given = iter(tensors)
        own = (next(given) if slot.kind == "tensor" else slot.values[0] for slot in self.slots)
        return [*own, *given]

    def _judged_values(self, slot: Slot, tensors: Sequence[Tensor]) -> Judged:
        def evaluate(value: Number) -> tuple[tuple[Tensor, ...], Observed]:
            function = in_float64(self._of_tensors(numbers={slot.name: value}))
            result, seen = observe(function, [tensor.clone() for tensor in tensors], self.file.path)
            return as_tuple(result), seen

        others = (value for value in slot.values[1:] if value != slot.values[0])
        return judged_values(slot.values[0], evaluate, (*slot.wanted, *others))
