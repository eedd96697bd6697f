"""Expert iteration: the smith's second stage of training, by the referee's verdicts alone.

    python -m forge.iterate --home DIR --rounds N --samples K --seed S [--ops a,b] [--functions ...]
                            [--shapes ...] [--device cpu|cuda] [--json FILE] [--resume]

Each round samples K drafts for every operation and function at every shape. The referee judges
each different one. The right ones are kept, the fastest with more weight. The next model trains on
them and on a part of the corpus. On the processor a verdict says right or wrong alone.
`forge/README.md` describes the rule and the files.

Exit code 2 for a wrong request, 3 where the referee cannot work here, 130 after an interrupt.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forge.places import Place
    from forge.rounds import Settings
    from kmint_tui.core.judges import Opened

SHAPES = ("32768x1024", "8192x4096", "2048x16384", "512x131072", "64x4096")
ALL = "all"


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Command-line arguments."""
    parser = argparse.ArgumentParser(prog="python -m forge.iterate", description="expert iteration")
    add = parser.add_argument
    add("--home", type=Path, required=True, help="the folder of the run")
    add("--rounds", type=int, default=1, help="rounds in all, those that are done included")
    add("--samples", type=int, default=8, help="drafts for each place in a round")
    add("--seed", type=int, default=1)
    add("--ops", default=ALL, help="operations, with commas, or all that are not held out")
    add("--functions", nargs="*", default=[], metavar="FILE.py:NAME@INPUTS")
    add("--shapes", nargs="*", default=list(SHAPES), help="such as 32768x1024 or 8192x4096:fp32")
    add("--heldout-ops", default=ALL, help="held-out operations to draft for, all, or none")
    add("--heldout-functions", nargs="*", default=[], metavar="FILE.py:NAME@INPUTS")
    add("--heldout-samples", type=int, help="drafts for each held-out place; as --samples")
    add("--model", type=Path, help="the first model: a GGUF file or a folder; the shipped one")
    add("--device", choices=("cpu", "cuda"), help="cuda where there is a GPU")
    add("--gpus", help="judge on several GPUs of this host, such as all or 0,1")
    add("--threads", type=int, help="verdicts at once")
    add("--judge-seconds", type=float, help="most seconds of judging in a round or evaluation")
    add("--temperature", type=float, default=0.7)
    add("--max-tokens", type=int, default=900, help="most tokens of a draft")
    add("--replay", type=float, default=0.75, help="share of the corpus in the examples")
    add("--passes", type=float, default=3.0, help="passes over a round's examples")
    add("--batch-tokens", type=int, default=32_768)
    add("--rate", type=float, default=3e-4, help="the largest learning rate")
    add("--most-steps", type=int, default=0, help="most training steps of a round; 0: no bound")
    add("--checkpoint-steps", type=int, default=50, help="steps between two checkpoints")
    add("--json", type=Path, help="also write the content of run.json to this file")
    add("--resume", action="store_true", help="continue the run in --home")
    found = parser.parse_args(words)
    if min(found.rounds, found.samples) < 1 or not 0 <= found.replay < 1:
        parser.error("--rounds and --samples are at least 1, and --replay is below 1")
    return found


def main(words: Sequence[str] | None = None) -> int:
    """Command line."""
    given = parse(words)
    from kmint_tui.errors import EnvironmentUnfit, KmintError

    try:
        run(given)
    except KmintError as error:
        fix = f"; {error.fix}" if error.fix else ""
        print(f"{error.title}: {error.message}{fix}", file=sys.stderr)
        return 3 if isinstance(error, EnvironmentUnfit) else 2
    except KeyboardInterrupt:
        print(f"interrupted: --resume continues the run in {given.home}", file=sys.stderr)
        return 130
    return 0


def run(given: argparse.Namespace) -> dict[str, Any]:
    """Do the rounds; the content of run.json. Raises KmintError."""
    if given.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    from convert import files
    from forge.checkpoint import EMBEDDED
    from forge.digests import seed_of
    from forge.judging import Judge
    from forge.places import places
    from forge.rounds import Run
    from kmint_tui.core.farm.opening import FarmAsked
    from kmint_tui.core.judges import open_judge
    from kmint_tui.core.referee import demand, judge_threads
    from kmint_tui.errors import UsageError

    if (given.home / "run.json").exists() and not given.resume:
        raise UsageError(
            f"{given.home} holds a run already", fix="add --resume, or give another --home"
        )
    device = _device(given.device)
    training = places(
        _names(given.ops, heldout=False), given.functions, given.shapes, heldout=False
    )
    heldout = places(
        _names(given.heldout_ops, heldout=True),
        given.heldout_functions,
        given.shapes,
        heldout=True,
    )
    threads = given.threads or judge_threads()
    asked = FarmAsked(gpus=given.gpus)
    with open_judge(demand(), print, threads=threads, asked=asked) as opened:
        judge = Judge(opened, given.home / "verdicts", seed_of(given.seed, "inputs"))
        found = Run(
            given.home,
            _settings(given),
            places=training,
            heldout=heldout,
            judge=judge,
            device=device,
            about=_about(judge, opened),
        )
        print(f"{len(training)} places to learn, {len(heldout)} held out; {_how(opened)}")
        found.start(given.model or EMBEDDED)
        if opened.times:
            _build_baselines([*training, *heldout])
        found.rounds(given.rounds)
    if given.json is not None:
        files.write_text(given.json, json.dumps(found.state, indent=1) + "\n")
    return found.state


def _names(text: str, *, heldout: bool) -> list[str]:
    """The operations of an option."""
    from forge.heldout import heldout_names, is_held_out
    from kmint_tui.graph.operations import catalogue_program
    from referee.ops import catalogue

    if text == "none":
        return []
    if text != ALL:
        return [name.strip() for name in text.split(",") if name.strip()]
    programs = {op.name: catalogue_program(op.name) for op in catalogue()}
    if heldout:
        return [name for name in programs if name in heldout_names()]
    return [name for name, made in programs.items() if made and not is_held_out(made)]


def _settings(given: argparse.Namespace) -> Settings:
    from forge.finetune import Training
    from forge.rounds import Settings

    return Settings(
        seed=given.seed,
        samples=given.samples,
        heldout_samples=given.heldout_samples or given.samples,
        temperature=given.temperature,
        most_tokens=given.max_tokens,
        replay=given.replay,
        seconds=given.judge_seconds,
        training=Training(
            passes=given.passes,
            batch_tokens=given.batch_tokens,
            rate=given.rate,
            most_steps=given.most_steps,
            every=given.checkpoint_steps,
        ),
    )


def _device(wanted: str | None) -> str:
    """The device of the model. Raises EnvironmentUnfit for a GPU that is not there."""
    import torch

    from kmint_tui.errors import EnvironmentUnfit

    if wanted == "cuda" and not torch.cuda.is_available():
        raise EnvironmentUnfit("torch finds no GPU", fix="give --device cpu")
    return wanted or ("cuda" if torch.cuda.is_available() else "cpu")


def _about(judge: Any, opened: Opened) -> dict[str, Any]:
    """The machine and the versions that the figures belong to."""
    import torch

    from referee.versions import triton_version

    return {
        "device": judge.device,
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "triton": triton_version(),
        "no_times": None if opened.times else opened.no_gpu,
    }


def _how(opened: Opened) -> str:
    if opened.times:
        return "right kernels are timed"
    return f"verdicts say right or wrong and nothing about speed: {opened.no_gpu}"


def _build_baselines(wanted: Sequence[Place]) -> None:
    """Build the baselines of all places by several processes, before anything is timed."""
    from kmint_tui.core.book.opening import builders_here

    print(f"building the baselines of {len(wanted)} places", flush=True)
    builders_here().build(place.timed for place in wanted)


if __name__ == "__main__":
    sys.exit(main())
