"""`kmint convert`: a base checkpoint and a PEFT adapter into a merged, quantised, proven GGUF."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from kmint_tui import __version__
from kmint_tui.cli.framework import Command
from kmint_tui.cli.sources import adapter_folder, base_folder, config_of_base
from kmint_tui.cli.state import State
from kmint_tui.errors import KmintError, ModelError, StorageError, UsageError

if TYPE_CHECKING:
    from convert.errors import ConvertError
    from convert.job import ConvertJob, Plan
    from convert.report import Report
    from convert.request import Level
    from convert.verify import Proof

_LEVELS = ("structure", "tokenizer", "logits", "full")
_REFRESH_SECONDS = 0.2


@click.command(cls=Command)
@click.option(
    "--base",
    metavar="DIR|ID",
    help="Checkpoint folder of the base model, or OWNER/NAME on the hub.",
)
@click.option(
    "--adapter", metavar="DIR|ID", help="PEFT LoRA adapter; without it the base alone is exported."
)
@click.option("--subfolder", metavar="NAME", help="Folder inside --adapter that holds the adapter.")
@click.option(
    "--adapter-only",
    is_flag=True,
    help="Write the adapter alone, for use at run time; implied without --base.",
)
@click.option(
    "--quant",
    metavar="TYPE[,TYPE…]",
    help="F32, F16, BF16, Q8_0, Q6_K, Q5_K_M, Q4_K_M, … [default: Q8_0; F16 for an adapter]",
)
@click.option(
    "--imatrix",
    is_flag=True,
    help="Quantise by importance, measured on the smith's own prompts (Q6_K and smaller).",
)
@click.option(
    "--out",
    metavar="FILE",
    help="The GGUF to write; with several types each gets its type in the name.",
)
@click.option(
    "--pre",
    metavar="NAME",
    help="llama.cpp's name of the pre-tokenizer, such as qwen2; for one kmint does not recognise.",
)
@click.option(
    "--verify",
    "level",
    default="tokenizer",
    show_default=True,
    type=click.Choice(_LEVELS),
    help="How much to prove.",
)
@click.option("--verify-only", metavar="FILE", help="Write nothing; prove a finished file again.")
@click.option(
    "--plan",
    "plan_only",
    is_flag=True,
    help="Write nothing; show memory, disk and the tensors touched.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.convert/1).")
@click.pass_obj
def convert(
    state: State,
    base: str | None,
    adapter: str | None,
    subfolder: str | None,
    adapter_only: bool,
    quant: str | None,
    imatrix: bool,
    out: str | None,
    pre: str | None,
    level: str,
    verify_only: str | None,
    plan_only: bool,
    as_json: bool,
) -> None:
    """Merge a LoRA adapter into its base and write a GGUF that llama.cpp loads, with proof that
    nothing was lost.

    \b
      kmint convert --base MiniCPM5-1B --adapter kernelsmith-minicpm5-1b --quant Q8_0 --out smith.gguf
      kmint convert --base Qwen3.6-27B --adapter kernelsmith-27b --subfolder rl_adapter_v2 --quant Q4_K_M --out smith.gguf --plan
      kmint convert --adapter kernelsmith-minicpm5-1b --out adapter.gguf

    Weights are streamed: the model is never held in memory, and no merged copy is written.
    """
    from convert.errors import ConvertError
    from convert.job import ConvertJob
    from convert.lora_job import LoraJob
    from convert.request import ConvertRequest

    if out is None and verify_only is None:
        raise UsageError(
            "where should the file go?", fix="give --out FILE, or --verify-only FILE to check one"
        )
    if base is None and adapter is None:
        raise UsageError("there is nothing to convert", fix="give --base, --adapter or both")
    if adapter is None and (subfolder is not None or adapter_only):
        option = "--subfolder" if subfolder is not None else "--adapter-only"
        raise UsageError(
            f"{option} is about an adapter, which is missing", fix="give --adapter DIR"
        )
    alone = adapter_only or base is None
    if imatrix and alone:
        raise UsageError(
            "--imatrix needs a whole model, and this writes an adapter alone",
            fix="give --base, without --adapter-only",
        )
    named = (quant or ("F16" if alone else "Q8_0")).split(",")
    kinds = tuple(dict.fromkeys(kind.strip().upper() for kind in named if kind.strip()))
    target = Path(verify_only or out or "")
    try:
        folder = adapter_folder(state, adapter, subfolder) if adapter is not None else None
        if base is not None:
            source = base_folder(state, base, weights=not alone, fetch_weights=not plan_only)
        else:
            assert folder is not None
            source = config_of_base(state, folder)
        request = ConvertRequest(
            base=source,
            out=target,
            kinds=kinds,
            adapter=folder,
            pre=pre,
            level=cast("Level", level),
            version=__version__,
        )
        with LoraJob(request) if alone else ConvertJob(request) as job:
            if verify_only is not None:
                _show_findings(state, target, job.verify(_file(target)), as_json=as_json)
            elif plan_only:
                _show_plan(state, job.plan(), as_json=as_json)
            else:
                progress = _Progress(state)
                reports = (
                    job.run(progress)
                    if isinstance(job, LoraJob)
                    else job.run(progress, _calibration(state, job) if imatrix else ())
                )
                progress.err.clear()
                _show_reports(state, reports, as_json=as_json, alone=alone)
    except ConvertError as error:
        raise _translated(error) from error


def _calibration(state: State, job: ConvertJob) -> tuple[str, ...]:
    texts = _calibration_texts(job.vocab.metadata)
    state.err.note(
        f"the importance matrix will be measured on {len(texts)} prompts, each one pass over the model"
    )
    return texts


def _file(path: Path) -> Path:
    if not path.is_file():
        raise ModelError(f"{path} is not a file", fix="give the path of a finished GGUF")
    return path


class _Progress:
    """One live line: bytes, rate and time left of the file being written."""

    def __init__(self, state: State) -> None:
        self.err = state.err
        self.name = ""
        self.started = self.shown = 0.0

    def __call__(self, name: str, done: int, total: int) -> None:
        now = time.monotonic()
        if name != self.name:
            self.name, self.started, self.shown = name, now, 0.0
            self.err.note(f"writing {name} ({total / 1e6:.1f} MB)")
        if now - self.shown < _REFRESH_SECONDS:
            return
        self.shown = now
        rate = done / max(now - self.started, 1e-6)
        left = (total - done) / max(rate, 1.0)
        self.err.block(
            [
                f"  {done / 1e6:.0f} of {total / 1e6:.0f} MB, {rate / 1e6:.0f} MB/s, {left:.0f} s left"
            ]
        )


def _show_plan(state: State, plan: Plan, *, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        state.out.document("kmint.convert.plan/1", asdict(plan))
        return
    pairs = [
        ("architecture", plan.architecture),
        ("tensors", f"{plan.tensors}; the adapter changes {len(plan.touched)} of them"),
        *(("touched", text) for text in _grouped(plan.touched)),
        ("parameters", f"{plan.parameters:,}"),
        ("disk needed", f"{plan.disk / 1e6:,.1f} MB"),
        ("peak memory", f"about {plan.peak_memory / 1e9:.2f} GB above the interpreter"),
        *((f"file {path}", f"{size / 1e6:,.1f} MB") for path, size in plan.files.items()),
        *(("note", note) for note in plan.notes),
    ]
    state.out.pairs(pairs)


def _grouped(names: Sequence[str]) -> list[str]:
    """Tensor names with their numbers left open, and how many there are of each: a line a kind
    instead of one a layer.
    """
    counts = Counter(re.sub(r"\.\d+\.", ".*.", name) for name in names)
    return [f"{name} ({count})" if count > 1 else name for name, count in sorted(counts.items())]


def _show_reports(state: State, reports: tuple[Report, ...], *, as_json: bool, alone: bool) -> None:
    if as_json:
        state.out.document("kmint.convert/1", {"files": [report.to_json() for report in reports]})
        return
    for report in reports:
        state.out.heading(report.path)
        state.out.pairs(
            [
                ("type", report.kind),
                ("size", f"{report.bytes / 1e6:.1f} MB"),
                ("sha256", report.sha256),
            ]
        )
        state.out.pairs(
            [(finding.level, f"{finding.status}: {finding.detail}") for finding in report.findings]
        )
        state.out.pairs([("note", note) for note in report.notes])
    use = (
        "load it with its base, by llama.cpp's --lora"
        if alone
        else "use it with `kmint mint OP --model FILE`"
    )
    state.err.hint(f"{use}; each file has its report next to it")


def _show_findings(state: State, path: Path, findings: tuple[Proof, ...], *, as_json: bool) -> None:
    if as_json:
        state.out.document(
            "kmint.convert.verify/1",
            {"path": str(path), "findings": [finding.to_json() for finding in findings]},
        )
    else:
        state.out.pairs(
            [(finding.level, f"{finding.status}: {finding.detail}") for finding in findings]
        )
    failed = [finding for finding in findings if finding.status == "fail"]
    if failed:
        raise ModelError(
            f"{path} differs from base and adapter: {failed[0].detail}", fix="convert it again"
        )


def _translated(error: ConvertError) -> KmintError:
    """A conversion error as the application's own kind, which decides the exit code."""
    from convert import errors

    if isinstance(error, errors.SpaceError):
        return StorageError(error.reason, fix=error.fix)
    known = (
        errors.SourceError,
        errors.AdapterError,
        errors.ArchitectureError,
        errors.VocabError,
        errors.VerifyError,
    )
    return (
        ModelError(error.reason, fix=error.fix)
        if isinstance(error, known)
        else UsageError(error.reason, fix=error.fix)
    )


PROMPTS = 24


def _calibration_texts(vocabulary: Mapping[str, Any]) -> tuple[str, ...]:
    """Prompts for operations spread over the catalogue, in both dialects in turn; `vocabulary`
    holds GGUF `tokenizer.*` keys.

    A model without a usable chat template gets the bare texts. Raises EnvironmentUnfit when the
    template could not be tried.
    """
    from kmint_tui.smith.prompts import build
    from kmint_tui.smith.template import FENCE, TemplateRefused
    from kmint_tui.smith.template_process import rendered
    from referee.ops import catalogue

    template = vocabulary.get("tokenizer.chat_template", "")
    number = vocabulary.get("tokenizer.ggml.bos_token_id")
    bos = vocabulary["tokenizer.ggml.tokens"][number] if number is not None else ""
    operations = catalogue()
    chosen = operations[:: max(1, len(operations) // PROMPTS)][:PROMPTS]
    prompts = [build(op, "card" if index % 2 else "trained") for index, op in enumerate(chosen)]
    try:
        return rendered(prompts, template, bos=bos, prefill=FENCE)
    except TemplateRefused:
        return tuple(f"{prompt.system}\n\n{prompt.user}\n{FENCE}" for prompt in prompts)
