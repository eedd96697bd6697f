"""Tables of measurements, made from the results in `bench/results`."""

from __future__ import annotations

from bench.claims import CLAIMS, Claim, Result, results_of
from bench.claims.minting import readme_rows

README_CLAIM = "mint_catalogue"


def readme_table() -> str:
    """Six rows of one run on a GPU, the losses included, and where they are from."""
    result = next(one for one in results_of(README_CLAIM) if "CPU" not in one.machine)
    rows = [f"| {label} | {text} |" for label, text in readme_rows(result.figures).items()]
    return "\n".join((f"| {_context(result)} | |", "|---|---|", *rows)) + "\n"


def claim_tables() -> str:
    """A section for each claim: what was measured, a table with a column for each machine, and
    where each run is from."""
    return "\n".join(
        _section(claim, results_of(claim.name))
        for claim in CLAIMS.values()
        if results_of(claim.name)
    )


def _context(result: Result) -> str:
    commit = f"commit {result.commit}" if result.commit else result.date
    torch, triton = (result.versions.get(name, "?") for name in ("torch", "triton"))
    return f"{result.machine}, {commit}, torch {torch}, triton {triton}"


def _section(claim: Claim, results: tuple[Result, ...]) -> str:
    columns = [claim.rows(result.figures) for result in results]
    labels = list(dict.fromkeys(label for rows in columns for label in rows))
    lines = [f"## {claim.title}", ""]
    if claim.about:
        lines += [claim.about, ""]
    lines += [
        f"| | {' | '.join(result.machine for result in results)} |",
        f"|---{'|---' * len(results)}|",
    ]
    lines += [
        f"| {label} | {' | '.join(rows.get(label, '-') for rows in columns)} |" for label in labels
    ]
    lines += [
        "",
        *(f"- {result.origin}." for result in results),
        f"- Measured by `{claim.script}`.",
        "",
    ]
    return "\n".join(lines)
