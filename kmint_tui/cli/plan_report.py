"""The plan of a minting session, as `kmint mint --dry-run` prints it."""

from __future__ import annotations

from dataclasses import asdict

from kmint_tui.cli.streams import Output
from kmint_tui.core.planning import described_program
from kmint_tui.core.referee import no_gpu_reason
from kmint_tui.core.reference import reference_rows
from kmint_tui.minting.request import MintRequest
from kmint_tui.models.fit import assess, readable

_GRAPH_PROMPT = "the steps of the graph; the smith writes the kernel, kmint the rest of the file"


def show_plan(out: Output, request: MintRequest, *, as_json: bool) -> None:
    """Write the plan, the estimate of memory, and the prompt."""
    here, lonely = request.endpoint is None, no_gpu_reason()
    fit = (
        assess(request.model.file, drafts=request.drafts, max_tokens=request.max_tokens)
        if here
        else None
    )
    if as_json:
        content = {
            "op": request.op.name,
            "model": request.model.id,
            "model_sha256": request.model_sha256,
            "model_reason": request.model.reason,
            "drafts": request.drafts,
            "seed": request.seed,
            "sampling": asdict(request.sampling),
            "max_tokens": request.max_tokens,
            "until": request.until,
            "repair": request.repair,
            "tune": request.tune,
            "dialect": request.dialect,
            "wording": request.wording,
            "template": request.template,
            "program": request.program.to_json() if request.program is not None else None,
            "target": request.target,
            "mode": "interpret" if lonely else "replay",
            "memory": fit.to_json() if fit is not None else None,
            "prompt": asdict(request.prompt),
            "reference": dict(_reference(request)) or None,
        }
        out.document("kmint.plan/1", content)
        return
    out.pairs(
        [
            ("op", f"{request.op.name}: {request.op.formula}"),
            *_reference(request),
            ("model", f"{request.model.id} ({_kind(request)}): {request.model.reason}"),
            (
                "drafts",
                f"{request.drafts} of at most {request.max_tokens} tokens, seed {request.seed}",
            ),
            *(
                [("repair", f"up to {request.repair} further rounds for rejected drafts")]
                if request.repair
                else []
            ),
            *(
                [("tune", "launch constants of the best kernel are swept on the GPU")]
                if request.tune
                else []
            ),
            (
                "sampling",
                f"temperature {request.sampling.temperature:g}, top-p {request.sampling.top_p:g}",
            ),
            (
                "memory",
                fit.text
                if fit is not None
                else "none here: the smith runs at its address and gets the prompt",
            ),
            ("graph", described_program(request)),
            ("template", _template(request)),
            ("prompt", _GRAPH_PROMPT if request.dialect == "graph" else request.wording),
            *_shapes(request),
            (
                "referee",
                f"interpreter, no timing ({lonely})" if lonely else "replay and timing on the GPU",
            ),
        ]
    )
    out.text("")
    out.heading("system")
    out.text(request.prompt.system)
    out.text("")
    out.heading("user")
    out.text(request.prompt.user)


def _reference(request: MintRequest) -> list[tuple[str, str]]:
    """The description of the user's own function; empty for an operation of the catalogue."""
    asked = None if isinstance(request.task, str) else request.task.asked
    return reference_rows(asked) if asked else []


def _shapes(request: MintRequest) -> list[tuple[str, str]]:
    """The asked shapes; empty where the usual one is timed."""
    shapes = () if isinstance(request.task, str) else request.task.shapes
    return [("shapes", ", ".join(shapes))] if shapes else []


def _template(request: MintRequest) -> str:
    if not request.template:
        return "left out (--no-template)"
    if request.program is None:
        return "none: it needs a graph"
    return "kmint writes one more kernel from the graph, without the smith"


def _kind(request: MintRequest) -> str:
    file = request.model.file
    return (
        f"an endpoint serving {file.name}"
        if request.endpoint is not None
        else f"{file.quant}, {readable(file.nbytes)}"
    )
