"""Explains a rejection: the reason, the usual remedy, and a small edit that helped, if one did.

The remedy is the change that helps most often at a guard. It supplements the verdict's reason,
which names the fault.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from kmint_tui.agent.edits import proposals
from kmint_tui.minting.reasons import long_reason
from referee.verdict import Stage

if TYPE_CHECKING:
    from referee.verdict import Verdict

_HOST = (
    "Host code may compute shapes and strides, allocate outputs, and launch kernels. Move "
    "everything else into a @triton.jit kernel."
)
_SHAPE = (
    "Write the kernel in the usual form: top-level functions under @triton.jit, with "
    "pointers, sizes and tl.constexpr numbers."
)

REMEDIES: dict[str, str] = {
    "parse": "Correct the Python syntax at the named line. Send the whole file, without Markdown "
    "around it.",
    "imports": "Import each name that the file uses by its own name, without `*`.",
    "entry_point": "Define one top-level function `run` with the operation's arguments in their "
    "order. It returns the output tensors.",
    "no_kernel": "Write the computation as a function under @triton.jit and launch it from `run`.",
    "kernels": _SHAPE,
    "kernel_syntax": _SHAPE,
    "kernel_name": "Use only arguments, local names, tl functions and constants of the file "
    "inside a kernel.",
    "cost": "Give the launch fewer spilled registers, or more programs and warps at once: the model "
    "of cost expects it to be slower than its rivals.",
    "kernel_constant": "Assign a constant once at the top level, as a plain number or as "
    "tl.constexpr.",
    "kernel_vocabulary": "Replace the named function by one that Triton documents in "
    "triton.language.",
    "not_judged": "Write it with the words that the message names, or with tl.load, tl.store and "
    "arithmetic.",
    "launch_feature": "Launch with `kernel[grid](arguments, BLOCK=...)`; leave out the named "
    "option.",
    "host_code": _HOST,
    "module_level": "Keep only imports, constants, functions and kernels at the top level.",
    "needs_value": "Decide by shapes, dtypes and strides alone. The referee traces `run` on "
    "tensors without values.",
    "size_decisions": "Decide by sizes that test cases reach, or handle every size in the same "
    "way. The reason names the comparison.",
    "state": "Keep nothing between two calls: no globals, no caches, no attributes of functions.",
    "statement": _HOST,
    "torch_compute": "Compute it in the kernel. torch may only allocate and view tensors in `run`.",
    "try_except": "Remove the fallback: a kernel that fails must fail visibly.",
    "vocabulary": _HOST,
    "trace": "Make `run` work for each shape and dtype of `show_operation`, also one row and one "
    "column.",
    "trace_error": "Make `run` work for each shape and dtype of `show_operation`, also one row "
    "and one column.",
    "plan_size": "Launch fewer kernels and allocate fewer tensors in one call of `run`.",
    "autotune": "Give each triton.Config plain numbers, and use every tuned name in the kernel's "
    "launch.",
    "output_alias": "Return tensors that `run` allocated itself: no input, no view of an input, "
    "and none of them twice.",
    "input_written": "Store to new tensors only; allocate them in `run` with torch.empty_like.",
    "output_contract": "Return new tensors with the dtype and shape of the operation's outputs, "
    "for example torch.empty_like(x).",
    "launch_limits": "Keep each axis of the grid within CUDA's limits; use the first axis for "
    "the largest number.",
    "compile_error": "Correct the kernel at the named line. tl.arange needs a power of two that "
    "is a tl.constexpr.",
    "compile": "Correct the kernel at the named line. tl.arange needs a power of two that is a "
    "tl.constexpr.",
    "kernel_error": "Correct the operation at the named line; check the shapes and dtypes of its "
    "operands.",
    "out_of_bounds": "Mask each tl.load and tl.store with `offsets < n`, and check the offsets "
    "of the last block and the last row.",
    "guard_band": "Mask each tl.store with `offsets < n`: it wrote behind the end of a tensor.",
    "wrong_answer": "Compare the formula of `show_operation` line by line. Compute in float32, "
    "and give masked loads a neutral `other`.",
    "input_mutated": "Store to new tensors only; allocate them in `run` with torch.empty_like.",
    "not_deterministic": "Write each element of an output exactly once, and read nothing that no "
    "kernel wrote.",
    "same_plan": "Make `run` launch the same kernels for the same shapes each time.",
    "timeout": "Look for a loop that never ends, or for far too many programs.",
    "crash": "Simplify the kernel: the compiler crashed on it.",
    "flood": "Launch fewer different kernels, and unroll less.",
    "memory": "Use less memory: smaller blocks, and no copies of the inputs.",
    "timing": "The kernel fell while it was timed; judge it with level `correct` first.",
    "referee": "The referee could not do its work, and this says nothing about the kernel. "
    "`kmint doctor` names the part.",
}
"""Advice by the guard that a verdict names."""

GENERAL = "Change the part that the reason names, and judge again."
SCHEMA = "kmint.explanation/1"
MOST_CASES = 5
_STAGES: tuple[str, ...] = get_args(Stage)
_MEANING = {
    "win": "It is right at every case, and faster than every baseline.",
    "tie": "It is right at every case, and as fast as the fastest baseline.",
    "loss": "It is right at every case, and slower than the fastest baseline.",
    "correct": "It is right at every case. Nothing was timed, so nothing is known of its speed.",
    "error": "The referee could not do its work. This says nothing about the kernel.",
}


def remedy(guard: str | None) -> str:
    """The advice for a guard."""
    return REMEDIES.get(guard or "", GENERAL)


def explanation(
    verdict: Mapping[str, Any],
    source: str,
    arguments: Sequence[str],
    again: Callable[[str], Verdict] | None,
) -> dict[str, Any]:
    """The fields of a `kmint.explanation/1` document.

    `again` judges an edited source; None tries no edits.
    """
    rejected = verdict["verdict"] == "rejected"
    guard = verdict.get("guard")
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "op": verdict.get("op"),
        "verdict": verdict["verdict"],
        "stage": verdict.get("stage"),
        "guard": guard,
        "reason": long_reason(verdict),
        "meaning": meaning(verdict),
        "remedy": remedy(guard) if rejected else None,
        "cases": _failed(verdict)[:MOST_CASES],
        "diff": None,
        "diff_verdict": None,
    }
    if (
        rejected
        and again
        and (better := _better(verdict, proposals(source, guard, arguments), again))
    ):
        edited, judged = better
        found["diff"] = diff(source, edited)
        found["diff_verdict"] = {
            "verdict": judged.verdict,
            "stage": judged.stage,
            "reason": long_reason(judged),
        }
    return found


def diff(before: str, after: str) -> str:
    """A unified diff of the two texts."""
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), "kernel.py", "kernel.py", lineterm=""
    )
    return "\n".join(lines) + "\n"


def _failed(verdict: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The required cases that failed."""
    cells = verdict.get("cells") or ()
    return [
        cell for cell in cells if cell.get("status") == "fail" and cell.get("role") != "capability"
    ]


def meaning(verdict: Mapping[str, Any]) -> str:
    """The meaning of a verdict, with its reservations, in plain sentences."""
    said = _meaning(verdict)
    if verdict.get("stage") != "done":
        return said
    if verdict.get("holds"):
        said = said.replace("every case", "every case that its launcher accepts")
    if verdict.get("host_code"):
        said += (
            " Nothing vouches for its host code: it may hold no crown, and it is not saved "
            "as it is."
        )
    return said


def _meaning(verdict: Mapping[str, Any]) -> str:
    outcome, stage = verdict["verdict"], verdict.get("stage")
    if outcome == "rejected":
        return f"It fell at the stage `{stage}`; nothing is known of the stages after it."
    if outcome == "unsure":
        more = "It is right at every case, and its speed is not decided."
        return (
            more
            if stage == "done"
            else f"Nothing stopped it up to the stage `{stage}`, and it was not run."
        )
    return _MEANING.get(outcome, "")


def _better(
    verdict: Mapping[str, Any], edited: Sequence[str], again: Callable[[str], Verdict]
) -> tuple[str, Verdict] | None:
    """The first edit that passes, else the edit that gets furthest; None if none gets further."""
    best: tuple[str, Verdict] | None = None
    furthest = _STAGES.index(verdict["stage"]) if verdict.get("stage") in _STAGES else 0
    for source in edited:
        judged = again(source)
        if judged.passed:
            return source, judged
        if judged.verdict != "error" and (at := _STAGES.index(judged.stage)) > furthest:
            best, furthest = (source, judged), at
    return best
