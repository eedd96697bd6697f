"""What the smith is asked: a system and a user text for one operation, in one of two dialects.

"card" follows the form on the public smiths' model cards: a typed signature, a one-line description and a trimmed example
kernel. "trained" follows the form they were trained on: a Python-like signature with the formula, notes, and the example
with its comments. The frame (order of the parts, labels, fences) is that public form; the sentences and kernels are our
own. `Wording` replaces the two sentences, for someone who wants a smith's own words.

Prompts are plain text: the chat template is applied in `template.py`.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kmint_tui.smith.exemplars import Dialect, exemplar_for, exemplar_source

if TYPE_CHECKING:
    from referee.ops.spec import Op

MAX_FEEDBACK = 600
_SPECIAL_TOKEN_START = re.compile(r"<(?=[|/A-Za-z｜])")


@dataclass(frozen=True)
class Prompt:
    """One request, before the chat template. `user` ends in a newline unless it carries feedback."""

    system: str
    user: str


@dataclass(frozen=True)
class Wording:
    """The two free sentences of a prompt. `exemplar` is formatted with `op`, the exemplar's name."""

    system: str = (
        "You write Triton kernels for GPUs. Answer with one fused kernel that is correct and fast: a single fenced python "
        "block holding the @triton.jit kernel and a function `run` that launches it. Keep reductions in float32. "
        "Code only, no explanation."
    )
    exemplar: str = "A valid Triton kernel for a DIFFERENT op (`{op}`), to be followed in style:"


DEFAULT_WORDING = Wording()


def build(op: Op, dialect: Dialect, feedback: str | None = None, wording: Wording = DEFAULT_WORDING) -> Prompt:
    """The prompt for a catalogue or user operation.

    `feedback` is the referee's one line about an earlier draft and turns the prompt into a repair request.
    Raises ValueError for an unknown dialect.
    """
    from referee.ops import card_text, trained_text

    if dialect not in ("card", "trained"):
        raise ValueError(f"unknown prompt dialect {dialect!r}: use card or trained")
    text = card_text(op) if dialect == "card" else trained_text(op)
    return compose(op.name, text.signature, text.description, dialect, feedback=feedback, wording=wording)


def compose(
    op_name: str,
    signature: str,
    description: str,
    dialect: Dialect,
    *,
    feedback: str | None = None,
    wording: Wording = DEFAULT_WORDING,
) -> Prompt:
    """The prompt from its parts. The card dialect indents the signature by two spaces, the trained one does not."""
    signature = textwrap.dedent(signature).strip("\n")
    if dialect == "card":
        signature = textwrap.indent(signature, "  ")
    exemplar = exemplar_for(op_name)
    user = (
        f"Op `{op_name}`: {description.strip()}\n"
        f"Signature:\n{signature}\n\n"
        f"{wording.exemplar.format(op=exemplar)}\n"
        f"```python\n{exemplar_source(exemplar, dialect)}```\n"
    )
    prompt = Prompt(wording.system, user)
    return prompt if feedback is None else with_feedback(prompt, feedback)


def with_feedback(prompt: Prompt, feedback: str) -> Prompt:
    """The repair request that follows a first one, in the form the public smiths were trained on: it does not quote the draft."""
    line = f"Your previous attempt's harness feedback: {one_line(feedback)}"
    return Prompt(prompt.system, f"{prompt.user}\n{line}\nFix it and make it faster.")


def one_line(feedback: str) -> str:
    """Feedback as one bounded line that cannot spell a special token.

    A referee line may quote text that a model wrote, and the rendered prompt is tokenised with special tokens parsed.
    """
    line = _SPECIAL_TOKEN_START.sub("< ", " ".join(feedback.split()))
    return line if len(line) <= MAX_FEEDBACK else line[: MAX_FEEDBACK - 3] + "..."
