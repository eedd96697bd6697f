"""The results that are kept: figures of one claim on one machine, with the commit, the host and
the versions."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parents[1] / "results"
SCHEMA = "kmint.bench.result/1"
SHORT_LINE = 240
"""Characters of a list or an object that stands on one line of a result file."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """Figures of one claim on one machine.

    `machine` heads the column of the table. `commit` is None where the run did not record it;
    `added` is then the commit that brought the result into the repository.
    """

    claim: str
    machine: str
    host: str
    date: str
    commit: str | None
    added: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    note: str = ""
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Machine, commit, date, host and versions in one line."""
        if self.commit is not None:
            commit = f"commit {self.commit}"
        else:
            commit = (
                f"commit not recorded, result added in {self.added}"
                if self.added
                else "commit not recorded"
            )
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        parts = (self.host, versions, self.note)
        return f"{self.machine}: {commit}, {self.date}; " + "; ".join(
            part for part in parts if part
        )


def load(path: Path) -> Result:
    """The result in a file of `bench/results`."""
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document.pop("schema") == SCHEMA, path
    return Result(**document)


def results_of(claim: str) -> tuple[Result, ...]:
    """The kept results of a claim: GPUs first, then those without one."""
    found = [load(path) for path in sorted(RESULTS.glob("*.json"))]
    return tuple(
        sorted(
            (one for one in found if one.claim == claim),
            key=lambda one: ("CPU" in one.machine, one.machine),
        )
    )


def write(result: Result, path: Path) -> None:
    """Keep a result: one line for whatever is short."""
    document = {"schema": SCHEMA, **asdict(result)}
    path.write_text(_dump(document, 0) + "\n", encoding="utf-8")


def _dump(value: Any, depth: int) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, (dict, list)) or (depth > 0 and len(flat) + depth <= SHORT_LINE):
        return flat
    inner, outer = " " * (depth + 1), " " * depth
    if isinstance(value, dict):
        lines = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {_dump(item, depth + 1)}"
            for key, item in value.items()
        ]
        return "{\n" + ",\n".join(lines) + f"\n{outer}}}"
    return "[\n" + ",\n".join(f"{inner}{_dump(item, depth + 1)}" for item in value) + f"\n{outer}]"
