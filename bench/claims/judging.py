"""Judging: is a verdict right, and how long does it take?"""

from __future__ import annotations

from statistics import median

from bench.claims.claim import Claim, Figures, Raw, Rows, percent, quantile

_PASSED = ("win", "tie", "loss", "unsure", "correct")


def _selftest(raw: Raw) -> Figures:
    return {
        "matrix": raw["matrix"],
        "mistakes": len(raw["failures"]),
        "skipped": sum(result["status"] == "skipped" for result in raw["results"]),
        "seconds": raw["seconds"],
    }


def _selftest_rows(figures: Figures) -> Rows:
    gold, wrong, cheats, behind = (
        figures["matrix"][row] for row in ("gold", "wrong", "cheats", "cheats behind the screen")
    )
    return {
        "Good kernels accepted": _of_all(gold["accepted"], gold),
        "Wrong kernels rejected by an intended guard": _of_all(wrong["intended guard"], wrong),
        "Cheats answered as intended": _of_all(_as_intended(cheats), cheats),
        "Cheats with the screen of host code off": _of_all(_as_intended(behind), behind),
        "Mistakes": str(figures["mistakes"]),
        "Seconds": f"{figures['seconds']:.0f}",
    }


def _of_all(count: int, cells: dict[str, int]) -> str:
    return f"{count} of {sum(cells.values())}"


def _as_intended(cells: dict[str, int]) -> int:
    return cells["accepted"] + cells["intended guard"]


def _verdicts(raw: Raw) -> Figures:
    seconds = [one["seconds"] for one in raw["verdicts"]]
    sustained = raw.get("sustained")
    return {
        "kernels": len(seconds),
        "right": sum(one["verdict"] in _PASSED for one in raw["verdicts"]),
        "median_seconds": round(median(seconds), 3),
        "ninth_decile_seconds": round(quantile(seconds, 0.9), 3),
        "stage_seconds": {name: round(value, 3) for name, value in raw["stages"].items()},
        "python_seconds": round(raw["processor"]["parsing_seconds"], 3)
        if raw.get("processor")
        else None,
        "sustained": sustained
        and {
            "candidates": sustained["candidates"],
            "at_once": sustained["threads"],
            "a_minute": round(sustained["per_minute"], 1),
            "right": sum(count for name, count in sustained["verdicts"].items() if name in _PASSED),
        },
    }


def _verdict_rows(figures: Figures) -> Rows:
    rows = {
        "Right kernels accepted": f"{figures['right']} of {figures['kernels']}",
        "Seconds a verdict, median": f"{figures['median_seconds']:.2f}",
        "Seconds a verdict, ninth decile": f"{figures['ninth_decile_seconds']:.2f}",
    }
    if sustained := figures["sustained"]:
        label = f"Verdicts a minute over {sustained['candidates']} kernels"
        rows[label] = (
            f"{sustained['a_minute']} with {sustained['at_once']} at once, "
            f"{sustained['right']} right"
        )
    if figures["python_seconds"] is not None:
        rows["Speed of the host: seconds of a fixed Python task"] = (
            f"{figures['python_seconds']:.2f}"
        )
    return rows


def _wrong(raw: Raw) -> Figures:
    runs = [run for one in raw["specimens"] for run in one["runs"]]
    return {
        "kernels": len(raw["specimens"]),
        "verdicts": len(runs),
        "mistakes": sum(one["mistakes"] for one in raw["specimens"]),
        "by_one_case": sum(one["fewest"] == 1 for one in raw["specimens"]),
        "seconds": raw["seconds"],
    }


def _wrong_rows(figures: Figures) -> Rows:
    return {
        "Wrong kernels, verdicts": f"{figures['kernels']}, {figures['verdicts']}",
        "Wrong kernels accepted": str(figures["mistakes"]),
        "Wrong kernels that a single case rejects at one of the seeds": str(figures["by_one_case"]),
    }


def _mutants(raw: Raw) -> Figures:
    return {
        "seed": raw["seed"],
        "mutants": raw["mutants"],
        "ended": raw["ended"],
        "accepted": len(raw["accepted"]),
    }


def _mutant_rows(figures: Figures) -> Rows:
    rows = {
        "Kernels with one random change": str(figures["mutants"]),
        "Rejected": str(figures["mutants"] - figures["accepted"]),
        "Accepted": str(figures["accepted"]),
    }
    if read := figures.get("read_by_hand"):
        rows["The accepted ones, read by hand"] = "; ".join(
            f"{count} {meaning}" for meaning, count in read.items()
        )
    return rows


def _kills(raw: Raw) -> Figures:
    return {
        "judgements": raw["judgements"],
        "right": raw["right"],
        "wrong": len(raw["wrong"]),
        "without_a_verdict": len(raw["errors"]),
        "kills": raw["kills"],
        "left_behind": len(raw["left"]),
        "seconds": raw["seconds"],
    }


def _kill_rows(figures: Figures) -> Rows:
    return {
        "Judgements, kills": f"{figures['judgements']}, {sum(figures['kills'].values())}",
        "Wrong verdicts": str(figures["wrong"]),
        "No verdict, because a worker was killed twice": str(figures["without_a_verdict"]),
        "Processes left behind": str(figures["left_behind"]),
    }


def _plans(raw: Raw) -> Figures:
    names = ("mutated plans", "refused", "accepted", "crashes or wrong acceptances", "seconds")
    return {name: raw[name] for name in names} | {"seed": raw["seed"]}


def _plan_rows(figures: Figures) -> Rows:
    return {
        "Launch plans with random changes": f"{figures['mutated plans']:,}",
        "Refused": percent(figures["refused"] / figures["mutated plans"]),
        "Crashes, or wrong plans accepted": str(figures["crashes or wrong acceptances"]),
    }


JUDGING = (
    Claim(
        name="selftest",
        title="The referee against kernels whose verdict is known",
        script="kmint selftest --json > RAW.json",
        schema="kmint.selftest/1",
        about=(
            "Good kernels must pass. Wrong kernels and cheats must be rejected by a guard "
            "that is meant for them. "
            "A few cheats are harmless as they stand and may pass."
        ),
        reduce=_selftest,
        rows=_selftest_rows,
    ),
    Claim(
        name="slips",
        title="Wrong kernels at several seeds",
        script="python bench/slips.py --json RAW.json",
        schema="kmint.slips/1",
        about=(
            "Each wrong kernel of the selftest that the interpreter can tell is judged at more "
            "than one secret seed."
        ),
        reduce=_wrong,
        rows=_wrong_rows,
    ),
    Claim(
        name="mutants",
        title="Right kernels with one random mistake",
        script="python bench/mutants.py --json RAW.json",
        schema="kmint.bench.mutants/1",
        about=(
            "One place of a right kernel is changed at random. Many such changes compute the "
            "same; a person reads all that pass."
        ),
        reduce=_mutants,
        rows=_mutant_rows,
    ),
    Claim(
        name="judge_catalogue",
        title="How long a verdict takes",
        script="python bench/judge_catalogue.py --level full --json RAW.json",
        schema="kmint.bench.judge_catalogue/1",
        about=(
            "One right kernel for each operation, with warm baselines, one after the other; "
            "then 200 kernels, several at once."
        ),
        reduce=_verdicts,
        rows=_verdict_rows,
    ),
    Claim(
        name="kill_judge",
        title="Judging while the referee's processes are killed",
        script="python bench/kill_judge.py --json RAW.json",
        schema="kmint.bench.kill_judge/1",
        about=(
            "Workers, compilers, fork servers and replaying processes are killed at random "
            "while kernels are judged."
        ),
        reduce=_kills,
        rows=_kill_rows,
    ),
    Claim(
        name="fuzz_plan",
        title="Damaged launch plans",
        script="python bench/fuzz_plan.py --json RAW.json",
        schema="kmint.bench.fuzz_plan/1",
        about="Launch plans are changed at random and given to the parser that guards the GPU.",
        reduce=_plans,
        rows=_plan_rows,
    ),
)
