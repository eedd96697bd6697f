"""Speed of the smith's kernels for users' functions: the best of 8 drafts against eager PyTorch,
`torch.compile` and `max-autotune-no-cudagraphs`.

    python bench/own_speed.py --drafts DRAFTS.json

    python bench/own_speed.py --drafts DRAFTS.json --json FILE [--sizes 8192x4096] [--only NAME ...]
                              [--builders 14] [--cache DIR] [--seconds LIMIT]

The functions and sizes are those of `bench/functions/timed.py`. The first command needs no GPU: the
embedded smith drafts with seed 1, without the template, and DRAFTS.json keeps the drafts. The
second needs one. Both go on where an earlier call ended, and keep every row at once.

Builders compile the baselines side by side. The script drops the measurements of inductor's
autotuner from that time. The process that times measures them again, with the GPU to itself. The
drafts of a function then race at the timed cell. The fastest gets a whole verdict; if it is
rejected, the next one does. Only device time of that verdict is reported.

Exit code 1 when a geometric mean misses GOALS, 3 when LIMIT ended the run before the last row.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench.first_kernel import commit  # noqa: E402
from bench.functions.timed import SIZES, TIMED, at_sizes  # noqa: E402
from bench.mint_catalogue import timing_of  # noqa: E402
from kmint_tui.core.planning import MintOptions, plan  # noqa: E402
from kmint_tui.core.referee import no_gpu_reason  # noqa: E402
from kmint_tui.minting.drafts import DraftBook  # noqa: E402
from kmint_tui.minting.request import environment  # noqa: E402
from kmint_tui.smith import Options, Smith  # noqa: E402
from kmint_tui.smith.events import DraftDone, Failed  # noqa: E402
from referee.judge import Referee  # noqa: E402
from referee.problem import TaskName  # noqa: E402
from referee.reference.asked import Asked  # noqa: E402
from referee.variant_timing import VariantsNotTimed  # noqa: E402
from referee.verdict import Verdict  # noqa: E402

SCHEMA = "kmint.bench.own_speed/1"
GOALS = {"8192x4096": 1.15, "32768x1024": 1.05}
DRAFTS, SEED = 8, 1
AT_ONCE = 3
"""Functions in work at a time: one is traced and compiled while another has the GPU."""


def tasks(sizes: Sequence[str]) -> Iterator[tuple[str, str, TaskName]]:
    """Every function at every size: its name, the size, and how the referee finds it."""
    for group, functions in TIMED.items():
        for name, inputs in functions.items():
            for rows, columns in SIZES:
                if (size := f"{rows}x{columns}") in sizes:
                    file = str(ROOT / f"bench/functions/{group}.py")
                    yield name, size, TaskName(name, file, name, (at_sizes(inputs, rows, columns),))


def draft(wanted: Sequence[tuple[str, str, TaskName]], file: Path) -> dict[str, Any]:
    """The drafts of all tasks, by name and size; drafts in `file` are not made again."""
    known: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    missing = [
        (f"{name} {size}", task) for name, size, task in wanted if f"{name} {size}" not in known
    ]
    if not missing:
        return known
    with tempfile.TemporaryDirectory() as home:
        smith: Smith | None = None
        for key, task in missing:
            assert task.file is not None
            request = plan(
                wishes(Asked(task.file, task.function, task.inputs)), draw_seed=lambda: SEED
            )
            if smith is None:
                options = Options(log=Path(home) / "smith.log", tuning=Path(home) / "tuning.json")
                smith = Smith(request.model.file.path, options)
            book, sources, tokens = DraftBook(request.drafted_stage), [], 0
            for event in smith.draft(
                request.prompt,
                DRAFTS,
                sampling=request.sampling,
                seed=SEED,
                max_tokens=request.max_tokens,
            ):
                if isinstance(event, Failed):
                    raise SystemExit(f"{key}: the smith failed: {event.reason}")
                if isinstance(event, DraftDone):
                    made = book.add(event)
                    tokens += made.tokens
                    sources += [made.source] if made.duplicate_of is None and made.source else []
            known[key] = {
                "sources": sources,
                "tokens": tokens,
                "model_sha256": request.model_sha256,
            }
            file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
            print(
                f"{len(known)} {key}: {len(sources)} distinct of {DRAFTS}",
                file=sys.stderr,
                flush=True,
            )
        if smith is not None:
            smith.close()
    return known


def wishes(asked: Asked) -> MintOptions:
    """The same as `kmint mint --reference ... --no-template` with the embedded smith."""
    return MintOptions(
        op=None,
        reference=asked,
        model="embedded",
        drafts=DRAFTS,
        seed=SEED,
        temperature=None,
        top_p=None,
        max_tokens=None,
        until="best",
        target=None,
        dialect=None,
        template=False,
    )


def build(wanted: Sequence[TaskName], cache: Path, builders: int, until: float) -> None:
    """Compiles the baselines of these tasks into the cache, several at a time, and drops the
    measurements made meanwhile.
    """
    waiting = list(reversed(wanted))

    def work() -> None:
        with Referee(cache=cache, mode="replay") as referee:
            while waiting and time.monotonic() < until:
                referee.warm(waiting.pop())

    with ThreadPoolExecutor(builders) as pool:
        for done in [pool.submit(work) for _ in range(builders)]:
            done.result()
    for measured in (cache / "baselines").rglob("*.best_config"):
        measured.unlink()


def timed(referee: Referee, task: TaskName, sources: Sequence[str]) -> dict[str, Any]:
    """The row of one task: the race of its drafts, and the verdict on the fastest that is right."""
    began = time.perf_counter()
    referee.warm(task)
    warmed = time.perf_counter()
    laps = raced(referee, task, sources)
    fastest = sorted(
        (number for number, (us, _) in enumerate(laps) if us is not None),
        key=lambda number: laps[number][0] or 0.0,
    )
    row: dict[str, Any] = {
        "distinct": len(sources),
        "laps": [us for us, _ in laps],
        "refused": [reason for us, reason in laps if us is None],
        "best": None,
        "warming": round(warmed - began, 2),
        "racing": round(time.perf_counter() - warmed, 2),
    }
    verdict: Verdict | None = None
    for number in fastest:
        verdict = referee.judge(sources[number], task)
        if verdict.passed:
            row |= {"best": timing_of(verdict.timing, verdict.verdict), "source": sources[number]}
            break
        row["refused"].append(f"{verdict.stage}/{verdict.guard}: {verdict.reason}")
    if verdict is not None:
        row["referee"] = {
            key: value for key, value in verdict.environment.items() if key != "executable"
        }
    return row | {"seconds": round(time.perf_counter() - began, 2)}


def raced(
    referee: Referee, task: TaskName, sources: Sequence[str]
) -> list[tuple[float | None, str]]:
    """Microseconds of each draft at the timed cell, or why it has none."""
    found: list[tuple[float | None, str]] = []
    while len(found) < len(sources):
        try:
            laps = referee.time_variants(sources[len(found) :], task)
        except VariantsNotTimed as error:
            # The race is run against its first kernel: without that one it begins anew.
            found.append((None, str(error)))
            continue
        found += [(lap.us, lap.refused) for lap in laps]
    return found


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """For each size: how many functions have a kernel, the outcomes, the losses, and the geometric
    means.
    """
    figures: dict[str, Any] = {}
    for size in GOALS:
        part = [row for row in rows if row["size"] == size]
        best = {
            row["name"]: row["best"] for row in part if row["best"] and row["best"].get("ratio")
        }
        ratios = {name: one["ratio"]["ratio"] for name, one in best.items()}
        outcomes = [one["outcome"] for one in best.values()]
        figures[size] = {
            "functions": len(part),
            "with_kernel": sum(row["best"] is not None for row in part),
            "mean": mean(list(ratios.values())),
            "means": {
                name: mean([one["ratios"][name] for one in best.values() if name in one["ratios"]])
                for name in dict.fromkeys(name for one in best.values() for name in one["ratios"])
            },
            "outcomes": {name: outcomes.count(name) for name in sorted(set(outcomes))},
            "losses": {
                name: round(ratios[name], 4)
                for name, one in best.items()
                if one["outcome"] == "loss"
            },
        }
    return figures


def mean(ratios: Sequence[float]) -> float | None:
    """The geometric mean; None of nothing."""
    return round(math.exp(sum(map(math.log, ratios)) / len(ratios)), 4) if ratios else None


def show(rows: Sequence[dict[str, Any]]) -> None:
    """A line for each row."""
    for row in rows:
        best = row["best"]
        if not best or "device_us" not in best:
            print(
                f"{row['name']:24} {row['size']:10} no kernel: {(row['refused'] or ['no draft'])[0][:120]}"
            )
            continue
        device = ", ".join(f"{name} {us:.1f}" for name, us in best["device_us"].items())
        ratio = best["ratio"]["ratio"] if best["ratio"] else math.nan
        print(
            f"{row['name']:24} {row['size']:10} {best['outcome']:7} {ratio:5.2f}x  {device} us  {row['seconds']:.1f} s",
            flush=True,
        )


def main() -> int:
    """Makes the missing drafts; with a GPU times the missing rows, and prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--drafts", type=Path, required=True, help="what the smith wrote")
    parser.add_argument("--json", type=Path, help="the rows; without it nothing is timed")
    parser.add_argument("--sizes", nargs="*", choices=tuple(GOALS), default=tuple(GOALS))
    parser.add_argument("--only", nargs="*", help="only these functions")
    parser.add_argument("--builders", type=int, default=max(1, len(os.sched_getaffinity(0)) - 2))
    parser.add_argument(
        "--cache", type=Path, help="where built baselines are kept for the next call"
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no function after this"
    )
    asked = parser.parse_args()
    until = time.monotonic() + asked.seconds
    wanted = [one for one in tasks(asked.sizes) if not asked.only or one[0] in asked.only]
    drafts = draft(wanted, asked.drafts)
    if asked.json is None:
        return 0
    if lonely := no_gpu_reason():
        raise SystemExit(f"timing needs a GPU: {lonely}")
    rows: list[dict[str, Any]] = (
        json.loads(asked.json.read_text())["rows"] if asked.json.exists() else []
    )
    done = {(row["name"], row["size"]) for row in rows}
    missing = [one for one in wanted if one[:2] not in done]
    about = {
        "schema": SCHEMA,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit(ROOT),
        "drafts": DRAFTS,
        "seed": SEED,
        "environment": environment(),
    }
    with tempfile.TemporaryDirectory() as empty:
        cache: Path = asked.cache or Path(empty)
        began = time.monotonic()
        if asked.builders:
            build(
                [task for _, _, task in missing],
                cache,
                min(asked.builders, max(1, len(missing))),
                until,
            )
        print(f"baselines compiled after {time.monotonic() - began:.0f} s", flush=True)

        def work(one: tuple[str, str, TaskName]) -> dict[str, Any] | None:
            name, size, task = one
            if time.monotonic() > until:
                return None
            return {
                "name": name,
                "size": size,
                **timed(referee, task, drafts[f"{name} {size}"]["sources"]),
            }

        with Referee(cache=cache, mode="replay") as referee, ThreadPoolExecutor(AT_ONCE) as pool:
            for finished in as_completed([pool.submit(work, one) for one in missing]):
                row = finished.result()
                if row is None:
                    continue
                machine = row.pop("referee", None)
                about |= {"referee": machine} if machine else {}
                rows.append(row)
                asked.json.write_text(
                    json.dumps({**about, "rows": rows, "summary": summary(rows)}, indent=1) + "\n",
                    encoding="utf-8",
                )
                show([row])
    figures = summary(rows)
    print(json.dumps(figures, indent=1))
    if len({(row["name"], row["size"]) for row in rows} & {one[:2] for one in wanted}) < len(
        wanted
    ):
        return 3
    return 0 if all((figures[size]["mean"] or 0.0) >= GOALS[size] for size in asked.sizes) else 1


if __name__ == "__main__":
    sys.exit(main())
