"""The known kernels: files with a header of `# key: value` lines and the candidate's text.

Keys: `op`; for a wrong kernel `slip` and `guard`; for a cheat `cheat` (its number), `title` and `guard`. `guard on a GPU` where
replay catches it by another guard, `behind the screen` where another guard catches it once the screen of host code is off,
`needs: gpu` where the CPU path cannot tell. Guards are alternatives separated by "|"; "accepted" means that the
trick gains nothing, because the plan that is judged is an honest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from referee.verdict import Mode

Kind = Literal["gold", "wrong", "cheats"]

KINDS: tuple[Kind, ...] = ("gold", "wrong", "cheats")
SUFFIX = ".py.txt"
ACCEPTED = "accepted"


@dataclass(frozen=True)
class Specimen:
    """One known kernel. `source` is the whole file, header included, as a candidate's text."""

    kind: Kind
    name: str
    op: str
    title: str
    source: str
    header: Mapping[str, str]

    def runs_on(self, mode: Mode) -> bool:
        """False where this path cannot tell."""
        return mode == "replay" or self.header.get("needs") != "gpu"

    def expected(self, mode: Mode, *, screened: bool = True) -> frozenset[str]:
        """The guards that may reject it, or "accepted"."""
        if self.kind == "gold":
            return frozenset({ACCEPTED})
        guard = self.header["guard"]
        if not screened and "behind the screen" in self.header:
            guard = self.header["behind the screen"]
        elif mode == "replay":
            guard = self.header.get("guard on a GPU", guard)
        return frozenset(guard.split("|"))


def load(kind: Kind) -> tuple[Specimen, ...]:
    """All specimens of a kind, by name."""
    folder = files("referee.selftest").joinpath(kind)
    found = sorted((entry for entry in folder.iterdir() if entry.name.endswith(SUFFIX)), key=lambda entry: entry.name)
    return tuple(_specimen(kind, entry.name.removesuffix(SUFFIX), entry.read_text(encoding="utf-8")) for entry in found)


def _specimen(kind: Kind, name: str, source: str) -> Specimen:
    header: dict[str, str] = {}
    for line in source.splitlines():
        if not line.startswith("# "):
            break
        key, _, value = line[2:].partition(": ")
        header[key] = value
    title = header.get("title") or header.get("slip") or header["structure"]
    return Specimen(kind, name, header["op"], title, source, header)
