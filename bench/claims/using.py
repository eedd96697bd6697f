"""Using kmint: how quickly it answers, how much it needs, and how it reads damaged files."""

from __future__ import annotations

from statistics import median

from bench.claims.claim import Claim, Figures, Raw, Rows, percent


def _startup(raw: Raw) -> Figures:
    return {
        "milliseconds": {name: round(1000 * seconds) for name, seconds in raw["medians"].items()}
    }


def _startup_rows(figures: Figures) -> Rows:
    return {f"`kmint {name}`, ms": str(value) for name, value in figures["milliseconds"].items()}


def _first_minutes(raw: Raw) -> Figures:
    return {
        "before": raw["before"],
        "build": {name: dict(build) for name, build in raw["builds"].items()},
        "mint": {name: dict(mint) for name, mint in raw["mints"].items()},
    }


def _first_minutes_rows(figures: Figures) -> Rows:
    def both(place: str, name: str) -> str:
        return f"{figures[place]['before'][name]:.1f}, {figures[place]['now'][name]:.1f}"

    before, mints = f"at {figures['before']} and now", figures["mint"]
    ratio = mints["two at once"]["total"] / mints["now"]["total"]
    return {
        f"Compiling llama.cpp, s, {before}": both("build", "seconds"),
        f"The same in processor seconds, {before}": both("build", "processor"),
        f"First correct kernel after the first draft, s, {before}": both(
            "mint", "first_kernel_after_draft"
        ),
        f"`kmint mint softmax` with 8 drafts, s, {before}": both("mint", "total"),
        "Two mints at once against one alone": f"{ratio:.2f}x",
    }


def _memory(raw: Raw) -> Figures:
    return {
        "models": len(raw["models"]),
        "median_error": round(raw["median_error"], 4),
        "largest_error": round(raw["largest_error"], 4),
        "referee_bytes": raw["referee_bytes"],
        "reserve_bytes": raw["reserve_bytes"],
    }


def _memory_rows(figures: Figures) -> Rows:
    errors = [percent(figures[name]) for name in ("median_error", "largest_error")]
    mebibytes = [str(figures[name] >> 20) for name in ("referee_bytes", "reserve_bytes")]
    return {
        "Models of random shapes": str(figures["models"]),
        "Error of the estimate: median, largest": ", ".join(errors),
        "Referee without a GPU, measured and reserved, MiB": ", ".join(mebibytes),
    }


def _airgap(raw: Raw) -> Figures:
    return {
        "wheels": raw["wheels"],
        "kernel": raw["best"],
        "doctor": raw["doctor"],
        "seconds": raw["seconds"],
    }


def _airgap_rows(figures: Figures) -> Rows:
    return {
        "Wheels in the wheelhouse": str(figures["wheels"]),
        "A correct kernel without a network": "yes" if figures["kernel"] else "no",
        "Seconds, all told": str(figures["seconds"]),
    }


def _headers(raw: Raw) -> Figures:
    return {
        "seed": raw["seed"],
        "outcomes": raw["outcomes"],
        "peak_memory_mb": round(raw["peak_memory_mb"], 1),
    }


def _header_rows(figures: Figures) -> Rows:
    rows = {
        f"{kind} headers refused": f"{counts['refused']:,} of {sum(counts.values()):,}"
        for kind, counts in sorted(figures["outcomes"].items())
    }
    return rows | {"Peak memory, MB": f"{figures['peak_memory_mb']:.0f}"}


def _first_frame(raw: Raw) -> Figures:
    return {"milliseconds": round(1000 * median(raw["times"])), "runs": len(raw["times"])}


def _first_frame_rows(figures: Figures) -> Rows:
    return {f"First frame, median of {figures['runs']}, ms": str(figures["milliseconds"])}


def _keys(raw: Raw) -> Figures:
    return {name: round(raw[name], 1) for name in ("median_ms", "p95_ms", "worst_ms")} | {
        "drafts": raw["drafts"]
    }


def _key_rows(figures: Figures) -> Rows:
    values = ", ".join(f"{figures[name]:.0f}" for name in ("median_ms", "p95_ms", "worst_ms"))
    return {f"While {figures['drafts']} drafts stream: median, 95th percentile, worst, ms": values}


def _history(raw: Raw) -> Figures:
    return {name: raw[name] for name in ("drafts", "runs", "median_ms", "worst_ms")}


def _history_rows(figures: Figures) -> Rows:
    return {
        "Drafts in the history": f"{figures['drafts']:,}",
        "`kmint history`, median, ms": f"{figures['median_ms']:.0f}",
    }


def _training(raw: Raw) -> Figures:
    names = (
        "dtype",
        "steps",
        "first_loss",
        "last_loss",
        "noise",
        "difference",
        "equal",
        "eager_us",
        "before_us",
        "after_us",
    )
    rows = [
        {**{name: row[name] for name in names}, "graphs": row.get("graphs")} for row in raw["rows"]
    ]
    return {"author": raw["author"], "kernels": raw["kernels"], "sizes": raw["sizes"], "rows": rows}


def _training_rows(figures: Figures) -> Rows:
    rows: Rows = {}
    for row in figures["rows"]:
        of, equal = row["dtype"], "yes" if row["equal"] else "NO"
        rows[f"{of}: losses of {row['steps']} steps equal, within noise"] = (
            f"{equal}: largest difference {row['difference']:.2g}, by noise {row['noise']:.2g}"
        )
        rows[f"{of}: us a step, eager; compiled without, with the saved kernels"] = (
            f"{row['eager_us']:,.0f}; {row['before_us']:,.0f}, {row['after_us']:,.0f}"
        )
        if graphs := row["graphs"]:
            rows[f"{of}: us a step in a CUDA graph, without, with"] = (
                f"{graphs['before_us']:,.0f}, {graphs['after_us']:,.0f}"
            )
    return rows


MOST_OVER_US = 8.0
"""The most that a saved function may cost the host over Triton's bare launch with its allocation."""


def _calls(raw: Raw) -> Figures:
    parts = ("checks_us", "one_by_one_us", "reference_us", "operator_us", "direct_us")
    calls = ("bare", "allocated", "saved", "saved_grad", "over", "operator", "torch", "reference")
    return {
        "operations": {row["op"]: {name: row[name] for name in parts} for row in raw["rows"]},
        "calls": {
            f"{row['file']}, {row['shape']}": {
                name: row[f"{name}_us"] for name in calls if row[f"{name}_us"] is not None
            }
            for row in raw["calls"]
        },
    }


def _calls_rows(figures: Figures) -> Rows:
    operations, calls = figures["operations"].values(), figures["calls"]

    def spread(name: str) -> str:
        found = [row[name] for row in operations]
        return f"{median(found):.1f} ({min(found):.1f} to {max(found):.1f})"

    rows = {
        "Operations": str(len(operations)),
        "Checks one by one, us: median, least to most": spread("one_by_one_us"),
        "Checks in their quick form, us": spread("checks_us"),
        "PyTorch's own answer, us": spread("reference_us"),
        "Through the registered operator, us": spread("operator_us"),
        "Around a direct launch, without its allocation, us": spread("direct_us"),
    }
    worst = max(row["over"] for row in calls.values())
    if not any("torch" in row for row in calls.values()):
        # The limit is over Triton's launch, which needs a GPU.
        rows["Saved files around a launch that does nothing, worst, us"] = f"{worst:.1f}"
        return rows
    kept = "kept" if worst <= MOST_OVER_US else "NOT kept"
    rows["Saved files over Triton's launch and its allocation, worst, us"] = (
        f"{worst:.1f} (limit {MOST_OVER_US:g}, {kept})"
    )
    for name, row in calls.items():
        rows[f"{name}: bare launch; saved function; operator; PyTorch's own, us"] = "; ".join(
            f"{row[one]:.1f}" for one in ("bare", "saved_grad", "operator", "torch")
        )
    return rows


USING = (
    Claim(
        name="first_minutes",
        title="Install and first mint",
        script="python bench/first_minutes.py --against CHECKOUT --json RAW.json",
        schema="kmint.bench.first_minutes/1",
        about=(
            "The first minutes of a new user without a GPU, before this edition and now, in one"
            " run. The mints take turns; each figure is a median."
        ),
        reduce=_first_minutes,
        rows=_first_minutes_rows,
    ),
    Claim(
        name="startup",
        title="Starting a command",
        script="python bench/startup.py --json RAW.json",
        schema="kmint.bench.startup/1",
        about="The median of 21 starts, as the shell sees it.",
        reduce=_startup,
        rows=_startup_rows,
    ),
    Claim(
        name="first_frame",
        title="Opening the application",
        script="python bench/first_frame.py --json RAW.json",
        schema="kmint.bench.first_frame/1",
        about="From the start of the process to the first frame.",
        reduce=_first_frame,
        rows=_first_frame_rows,
    ),
    Claim(
        name="tui_latency",
        title="Keys in the application",
        script="python bench/tui_latency.py --json RAW.json",
        schema="kmint.bench.tui_latency/1",
        about="From a key to its effect.",
        reduce=_keys,
        rows=_key_rows,
    ),
    Claim(
        name="history",
        title="A long history",
        script="python bench/history.py --json RAW.json",
        schema="kmint.bench.history/1",
        about="",
        reduce=_history,
        rows=_history_rows,
    ),
    Claim(
        name="memory",
        title="The memory estimate",
        script="python bench/memory.py --json RAW.json",
        schema="kmint.bench.memory/1",
        about="What `kmint models show` and `--dry-run` estimate, against what llama.cpp reports.",
        reduce=_memory,
        rows=_memory_rows,
    ),
    Claim(
        name="fuzz_headers",
        title="Damaged model files",
        script="python bench/fuzz_headers.py --json RAW.json",
        schema="kmint.bench.fuzz_headers/1",
        about=(
            "Headers with random changes. None may crash kmint or make it allocate what the "
            "header claims."
        ),
        reduce=_headers,
        rows=_header_rows,
    ),
    Claim(
        name="airgap",
        title="A machine without a network",
        script="bench/airgap.sh RAW.json",
        schema="kmint.bench.airgap/1",
        about=(
            "Wheelhouse and bundle on one side; install, import and mint in a namespace without"
            " a network on the other."
        ),
        reduce=_airgap,
        rows=_airgap_rows,
    ),
    Claim(
        name="saved_calls",
        title="Small calls of saved functions",
        script="python bench/saved_calls.py --json RAW.json",
        schema="kmint.bench.saved_calls/2",
        about=(
            "The host's time for a 64 x 64 call by its parts, on the CPU, and for calls of whole saved"
            " files at 64 x 1,024, 1 x 4,096 and 4 x 16 x 1,024 in bf16. Without a GPU a launch that does"
            " nothing replaces Triton's there."
        ),
        reduce=_calls,
        rows=_calls_rows,
    ),
    Claim(
        name="saved_training",
        title="Training with saved kernels",
        script="python bench/saved_training.py --json RAW.json",
        schema="kmint.bench.saved_training/1",
        about=(
            "A small transformer trains with five saved kernels of the embedded smith in place of its own "
            "functions (rmsnorm, add_rmsnorm, swiglu, rope, cross_entropy), under `torch.compile`. Noise is "
            "how far the losses of PyTorch's own functions go apart where the weights begin one rounding "
            "apart. The compiler cannot fuse its own code into a saved kernel, so a step may take longer."
        ),
        reduce=_training,
        rows=_training_rows,
    ),
)
