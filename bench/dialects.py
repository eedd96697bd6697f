"""A smith's pass rate by prompt dialect, by fenced or bare answer, and with one repair round, over a set of operations.

    python bench/dialects.py --json FILE [--model ID|PATH] [--ops OP ...] [--drafts 4] [--seed 1] [--seconds LIMIT]

Each op is drafted in both dialects ("card", "trained"), bare and with the code fence already opened; every draft is judged at
the level "correct" (by Triton's interpreter where there is no GPU; a kernel that comes up again is judged once). Each rejected
draft is then tried again in three ways: told the brief feedback, told the referee's full reason, and, as the control at the
same price, asked once more with the first prompt and another seed. A draft counts as passed after repair when it or its second
try passed. Rows are kept in FILE as they are done and not run again by the next call. Exit code 3 when LIMIT ended the run early.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from forge.ops import heldout  # noqa: E402
from kmint_tui.cli.planning import Wishes, plan  # noqa: E402
from kmint_tui.minting.drafts import Draft, DraftBook  # noqa: E402
from kmint_tui.minting.request import MintRequest, environment  # noqa: E402
from kmint_tui.minting.rounds import Batch, batch_seed, first_round, repairs  # noqa: E402
from kmint_tui.smith import DraftDone, Failed, Options, Smith  # noqa: E402
from kmint_tui.smith.canonical import canonical  # noqa: E402
from referee.judge import Referee  # noqa: E402
from referee.verdict import Verdict  # noqa: E402

SCHEMA = "kmint.bench.dialects/1"
DIALECTS, FORMS, WAYS = ("card", "trained"), ("bare", "fenced"), ("brief", "full", "again")
OPS = (
    "softmax rmsnorm layernorm swiglu geglu rope qknorm_rope log_softmax cross_entropy dequant_int8 l2norm "
    "rmsnorm_gelu add_rmsnorm_silu layernorm_relu2 add_layernorm_sigmoid "
    "rmsnorm_mish layernorm_tanh add_rmsnorm_gelu add_layernorm_relu6 reglu glu bias_gelu"
).split()


@dataclass
class Cell:
    """One op in one dialect and form: its drafts, their verdicts, and the second tries of the rejected ones by way."""

    request: MintRequest
    form: str
    drafts: list[Draft] = field(default_factory=list)
    tries: dict[str, list[Draft]] = field(default_factory=dict)


class Workshop:
    """Smith and referee; verdicts are shared by all drafts of an op that are the same kernel."""

    def __init__(self, smith: Smith, referee: Referee, pool: ThreadPoolExecutor) -> None:
        self._smith, self._referee, self._pool = smith, referee, pool
        self._verdicts: dict[tuple[str, str], Future[Verdict]] = {}

    def draft(self, cell: Cell, batches: Sequence[Batch]) -> Iterator[Draft]:
        """Draft the batches and have every kernel judged. Raises SystemExit with the reason when the smith fails."""
        request = cell.request
        book = DraftBook()
        for batch in batches:
            events = self._smith.draft(
                batch.prompt,
                batch.drafts,
                sampling=request.sampling,
                seed=batch.seed,
                max_tokens=request.max_tokens,
                fence=cell.form == "fenced",
            )
            for event in events:
                if isinstance(event, Failed):
                    raise SystemExit(f"the smith failed: {event.reason}")
                if isinstance(event, DraftDone):
                    number = event.draft + batch.first
                    made = replace(book.add(event), index=number, duplicate_of=None, round=batch.round, parent=batch.parent(number))
                    self._judge(request, made)
                    yield made

    def verdict(self, request: MintRequest, draft: Draft) -> Verdict:
        """The verdict on a draft that was made here; waits for it."""
        return self._verdicts[request.op.name, canonical(draft.source)].result()

    def _judge(self, request: MintRequest, draft: Draft) -> None:
        key = request.op.name, canonical(draft.source)
        if key not in self._verdicts:
            self._verdicts[key] = self._pool.submit(self._referee.judge, draft.source, request.task, level="correct")


def second_tries(workshop: Workshop, cell: Cell) -> None:
    """One more draft for each rejected one, in every way."""
    request = cell.request
    verdicts = {draft.index: workshop.verdict(request, draft) for draft in cell.drafts}
    first = len(cell.drafts)
    for way in WAYS:
        batches = repairs(replace(request, feedback="full" if way == "full" else "brief"), 1, first, cell.drafts, verdicts)
        if way == "again" and batches:
            parents = tuple(parent for batch in batches for parent in batch.parents)
            batches = (Batch(request.prompt, batch_seed(request.seed, first), 1, first, parents),)
        cell.tries[way] = list(workshop.draft(cell, batches))


def row_of(workshop: Workshop, cell: Cell, dialect: str, held_out: bool) -> dict[str, Any]:
    """What is kept of a cell."""
    request = cell.request

    def passed(draft: Draft) -> bool:
        return workshop.verdict(request, draft).passed

    right = {draft.index for draft in cell.drafts if passed(draft)}
    after = {way: {*right, *(draft.parent for draft in tries if passed(draft))} for way, tries in cell.tries.items()}
    lost = [workshop.verdict(request, draft) for draft in cell.drafts if draft.index not in right]
    return {
        "op": request.op.name,
        "heldout": held_out,
        "dialect": dialect,
        "form": cell.form,
        "drafts": len(cell.drafts),
        "first": len(right),
        **{way: len(found) for way, found in after.items()},
        "tokens": sum(draft.tokens for draft in cell.drafts),
        "truncated": sum(draft.truncated for draft in cell.drafts),
        "fell_at": [f"{verdict.stage}/{verdict.guard}" for verdict in lost],
    }


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """By dialect and form, all ops and the held-out ones: shares of drafts, and ops with at least one right draft."""
    found = []
    for dialect in DIALECTS:
        for form in FORMS:
            cells = [row for row in rows if (row["dialect"], row["form"]) == (dialect, form)]
            for name, part in (("all", cells), ("held out", [row for row in cells if row["heldout"]])):
                drafts = sum(row["drafts"] for row in part)
                if drafts:
                    shares = {key: round(sum(row[key] for row in part) / drafts, 4) for key in ("first", *WAYS)}
                    solved = {f"ops_{key}": sum(row[key] > 0 for row in part) for key in ("first", *WAYS)}
                    found.append({"dialect": dialect, "form": form, "ops": name, "count": len(part), "drafts": drafts, **shares, **solved})
    return found


def show(figures: Sequence[dict[str, Any]]) -> None:
    """The table on stdout."""
    print("dialect  form    ops           drafts   right   + brief  + full   + again   ops solved: first, brief, full, again")
    for one in figures:
        shares = "  ".join(f"{100 * one[key]:5.1f} %" for key in ("first", *WAYS))
        solved = ", ".join(str(one[f"ops_{key}"]) for key in ("first", *WAYS))
        print(f"{one['dialect']:8} {one['form']:7} {one['ops']:8} {one['count']:>3} {one['drafts']:>7}  {shares}   {solved}")


def processor() -> str:
    """The processor's name, as Linux tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def parse() -> argparse.Namespace:
    """Command-line arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--ops", nargs="*", default=OPS)
    parser.add_argument("--drafts", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--judges", type=int, default=max(1, min(4, len(os.sched_getaffinity(0)))))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no op after this time")
    return parser.parse_args()


def request_of(op: str, dialect: Any, arguments: argparse.Namespace) -> MintRequest:
    """The same as `kmint mint OP --dialect D --drafts N --seed S --model M`."""
    wishes = Wishes(op, None, arguments.model, arguments.drafts, arguments.seed, None, None, None, "best", None, dialect)
    return plan(wishes, draw_seed=lambda: arguments.seed)


def main() -> int:
    """Run what is missing, keep every row, print the table."""
    arguments = parse()
    started = time.monotonic()
    out = {op.name for op in heldout()}
    document: dict[str, Any] = json.loads(arguments.json.read_text()) if arguments.json.exists() else {"rows": []}
    rows: list[dict[str, Any]] = document["rows"]
    spent = float(document.get("seconds", 0.0))
    missing = [op for op in arguments.ops if op not in {row["op"] for row in rows}]
    model = request_of(arguments.ops[0], "card", arguments)
    with (
        tempfile.TemporaryDirectory() as home,
        Referee(cache=Path(home) / "referee") as referee,
        ThreadPoolExecutor(arguments.judges) as pool,
        Smith(model.model.file.path, Options(log=Path(home) / "smith.log", tuning=Path(home) / "tuning.json")) as smith,
    ):
        workshop = Workshop(smith, referee, pool)
        waiting: list[tuple[str, list[tuple[str, Cell]]]] = []
        while missing or waiting:
            if missing and time.monotonic() - started > arguments.seconds:
                missing = []
            # One op is drafted ahead, so that the referee has work while second tries are written.
            if missing:
                op = missing.pop(0)
                cells = [(dialect, Cell(request_of(op, dialect, arguments), form)) for dialect in DIALECTS for form in FORMS]
                for _, cell in cells:
                    cell.drafts = list(workshop.draft(cell, first_round(cell.request)))
                waiting.append((op, cells))
                if len(waiting) < 2 and missing:
                    continue
            if not waiting:
                break
            op, cells = waiting.pop(0)
            for _, cell in cells:
                second_tries(workshop, cell)
            rows += [row_of(workshop, cell, dialect, op in out) for dialect, cell in cells]
            document = {
                "schema": SCHEMA,
                "date": time.strftime("%Y-%m-%d", time.gmtime()),
                "model": arguments.model,
                "model_sha256": model.model_sha256,
                "drafts": arguments.drafts,
                "seed": arguments.seed,
                "mode": referee.mode,
                "cores": len(os.sched_getaffinity(0)),
                "processor": processor(),
                "environment": environment(),
                "seconds": round(spent + time.monotonic() - started, 1),
                "rows": rows,
                "summary": summary(rows),
            }
            arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            print(f"{op}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    show(summary(rows))
    return 3 if len({row["op"] for row in rows}) < len(arguments.ops) else 0


if __name__ == "__main__":
    sys.exit(main())
