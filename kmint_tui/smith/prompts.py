"""The prompt for one operation or function, in the form that the smith was trained on.

A smith's own card gives the words, the example kernel and the form (`card.py`). Without a card, the
dialects "card" and "trained" follow the public form with kmint's own sentences and kernels. "card"
has a typed signature, a one-line description and a trimmed example kernel. "trained" has a
Python-like signature with the formula, notes, and the example with its comments. "request" is a
plain question for a kernel, or for the conversion of a function, without an example.

A user's own function is described by its source, arguments, results and graph.

Prompts are plain text; `template.py` applies the chat template.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kmint_tui.graph.program import stage_text

if TYPE_CHECKING:
    from kmint_tui.graph.program import Program, Stage
    from referee.problem import TaskName
    from referee.reference.inputs import TensorInput
    from referee.reference.reference import Argument, Example, Reference

import re
import textwrap
from typing import TYPE_CHECKING

from kmint_tui.smith.card import CardPrompt
from kmint_tui.smith.exemplars import DIALECTS, Dialect, exemplar_for, exemplar_source
from kmint_tui.smith.template import Prompt as Prompt

if TYPE_CHECKING:
    from kmint_tui.graph.program import Program, Stage
    from kmint_tui.models.registry import Dialect as AnyDialect
    from referee.ops.spec import Op
    from referee.problem import TaskName


MAX_FEEDBACK = 600
_SPECIAL_TOKEN_START = re.compile(r"<(?=[|/A-Za-z｜])")


SYSTEM = (
    "You write Triton kernels for GPUs. Answer with one fused kernel that is correct and "
    "fast: a single fenced python "
    "block holding the @triton.jit kernel and a function `run` that launches it. Keep "
    "reductions in float32. "
    "Code only, no explanation."
)
EXAMPLE = "A valid Triton kernel for a DIFFERENT op (`{op}`), to be followed in style:"


def build(
    op: Op, dialect: AnyDialect, feedback: str | None = None, card: CardPrompt | None = None
) -> Prompt:
    """The prompt for a catalogue or user operation, in the words of the smith's `card` if it has
    one.

    `feedback` is the referee's one line on an earlier draft and makes the prompt a repair request.
    Raises ValueError for an unknown dialect.
    """
    from referee.ops import card_text, trained_text

    if dialect == "request":
        return _repaired(
            _request(
                f"provide a Triton kernel for {op.name.replace('_', ' ')}", card_text(op).signature
            ),
            feedback,
        )
    if dialect not in DIALECTS:
        raise ValueError(f"unknown prompt dialect {dialect!r}: use card, trained or request")
    text = card_text(op) if dialect == "card" or card is not None else trained_text(op)
    return compose(op.name, text.signature, text.description, dialect, feedback=feedback, card=card)


def compose(
    op_name: str,
    signature: str,
    description: str,
    dialect: Dialect,
    *,
    feedback: str | None = None,
    card: CardPrompt | None = None,
) -> Prompt:
    """The prompt from its parts. Only the card dialect indents the signature by two spaces."""
    signature = textwrap.dedent(signature).strip("\n")
    if card is not None:
        return _repaired(card.build(op_name, signature, description), feedback)
    if dialect == "card":
        signature = textwrap.indent(signature, "  ")
    example = exemplar_for(op_name)
    user = (
        f"Op `{op_name}`: {description.strip()}\n"
        f"Signature:\n{signature}\n\n"
        f"{EXAMPLE.format(op=example)}\n"
        f"```python\n{exemplar_source(example, dialect)}```\n"
    )
    return _repaired(Prompt(SYSTEM, user), feedback)


def _request(question: str, signature: str, source: str = "") -> Prompt:
    """A question without a system text, the form of this dialect; the referee calls `run`."""
    code = f"\n```python\n{source.rstrip()}\n```\n" if source else ""
    return Prompt(
        "",
        f"Can you {question}?{code}\nIts entry point is `{signature}`, which launches the "
        "kernel.\n",
    )


def _repaired(prompt: Prompt, feedback: str | None) -> Prompt:
    return prompt if feedback is None else with_feedback(prompt, feedback)


GRAPH_SYSTEM = "Write the Triton kernel and its launch."


def graph_prompt(stage: Stage, feedback: str | None = None) -> Prompt:
    """The prompt for a smith that reads graphs: the stage's text. `feedback` as in `build`."""
    return _repaired(Prompt(GRAPH_SYSTEM, stage_text(stage)), feedback)


def function_prompt(
    task: TaskName,
    dialect: AnyDialect,
    program: Program | None,
    feedback: str | None = None,
    card: CardPrompt | None = None,
) -> Prompt:
    """The prompt for a user's own function: source, arguments, results and graph, if it has one."""

    text = describe_function(task, program)
    if dialect == "request":
        return _repaired(
            _request("convert this PyTorch code to a Triton kernel", text.signature, text.source),
            feedback,
        )
    prompt = compose(
        task.op,
        text.signature,
        text.description,
        "trained" if dialect == "trained" else "card",
        card=card,
    )
    whole = Prompt(prompt.system, f"{text.head}\n{prompt.user}{text.tail}")
    return _repaired(whole, feedback)


def with_feedback(prompt: Prompt, feedback: str) -> Prompt:
    """The repair request after a first request, in the form the public smiths were trained on.

    It does not quote the draft.
    """
    line = f"Your previous attempt's harness feedback: {one_line(feedback)}"
    return Prompt(prompt.system, f"{prompt.user}\n{line}\nFix it and make it faster.")


def one_line(feedback: str) -> str:
    """Feedback as one bounded line without special tokens.

    A referee line may quote text that a model wrote, and special tokens of the rendered prompt are
    parsed.
    """
    line = _SPECIAL_TOKEN_START.sub("< ", " ".join(feedback.split()))
    return line if len(line) <= MAX_FEEDBACK else line[: MAX_FEEDBACK - 3] + "..."


@dataclass(frozen=True)
class FunctionText:
    """`head` stands before the request, `tail` after the example kernel.

    `source` is the function's own code.
    """

    signature: str
    description: str
    head: str
    tail: str
    source: str


def describe_function(task: TaskName, program: Program | None) -> FunctionText:
    """The function's text. Imports torch and runs the user's file."""
    from referee.reference.load import load_reference
    from referee.reference.shapes import shapes_in_symbols
    from referee.reference.task import load_task
    from referee.reference.user_torch import user_code

    assert task.asked is not None
    with user_code():
        reference = load_reference(task.asked)
    example = reference.examples[0]
    cells = [
        cell
        for cell in load_task(task.asked, "cpu").required
        if cell.name.startswith(f"{example.label}-")
    ]
    shapes = shapes_in_symbols(example.family, cells)
    results = [
        f"{spec.name}: {spec.dtype}[{', '.join(shape)}]"
        for spec, shape in zip(cells[0].outputs, shapes, strict=True)
    ]
    head = (
        "Convert this PyTorch function into a fused Triton kernel with a function `run` "
        "that takes the same arguments "
        f"and returns the same results.\n```python\n{reference.source.rstrip()}\n```\n"
    )
    arguments = ", ".join(_argument_words(reference, one, example) for one in reference.arguments)
    result = results[0].partition(": ")[2] if len(results) == 1 else f"({', '.join(results)})"
    signature = f"run({arguments}) -> {result}"
    facts = [f"Fixed: {one.name} = {one.value!r}." for one in reference.fixed]
    facts += [
        f"Also judged with: {_input_words(reference, other)}." for other in reference.examples[1:]
    ]
    graph = _graph(program) if program is not None else ""
    tail = "".join(f"\n{fact}" for fact in facts) + graph
    return FunctionText(
        signature,
        reference.summary or f"the same as {reference.name}",
        head,
        tail,
        reference.source,
    )


def _argument_words(reference: Reference, argument: Argument, example: Example) -> str:
    if argument.kind == "scalar":
        return f"{argument.name}: {type(argument.usual).__name__} = {argument.usual!r}"
    place = reference.tensors.index(argument.name)
    tensor = example.family.tensors[place]
    return f"{argument.name}: {tensor.dtype}{_dims(tensor, example)}{_layout(tensor)}"


def _input_words(reference: Reference, example: Example) -> str:
    return ", ".join(
        f"{name}: {tensor.dtype}{_dims(tensor, example)}"
        for name, tensor in zip(reference.tensors, example.family.tensors, strict=True)
    )


def _dims(tensor: TensorInput, example: Example) -> str:
    from referee.reference.shapes import size_in_symbols

    return f"[{', '.join(size_in_symbols(example.family, dim) for dim in tensor.dims)}]"


def _layout(tensor: TensorInput) -> str:
    return f" with strides {list(tensor.strides)}" if tensor.strides is not None else ""


def _graph(program: Program) -> str:
    parts = []
    for number, stage in enumerate(program.stages):
        name = "" if len(program.stages) == 1 else f" of kernel {number + 1}"
        parts.append(
            f"\nSteps{name} (rows M = {_size(stage, 'M')}, columns N = {_size(stage, 'N')}; "
            "addresses count elements):\n"
        )
        reads = ", ".join(f"a{place} = {tensor}" for place, tensor in enumerate(stage.reads))
        writes = ", ".join(f"b{place} = {tensor}" for place, tensor in enumerate(stage.writes))
        constants = ", ".join(
            f"k{place} = {value!r}" for place, value in enumerate(stage.constants)
        )
        parts.append(
            "; ".join(text for text in (reads, writes, constants) if text)
            + "\n"
            + stage_text(stage)
        )
    return "".join(parts)


def _size(stage: Stage, name: str) -> str:
    return dict(stage.sizes).get(name, "1")
