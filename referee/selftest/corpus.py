"""The specimens: files with a header of `# key: value` lines and a candidate's text.

- `op` names the operation.
- `slip` and `guard` describe a wrong kernel.
- `cheat` (its number), `title` and `guard` describe a cheat.
- `guard on a GPU` is the guard if a replay finds it by another one.
- `behind the screen` is the guard, or none, without strict host code.
- `needs: gpu` marks a specimen that the CPU path cannot decide.

Guards are alternatives separated by "|". "accepted" means that the trick gains nothing, because the
judged plan is an honest one. A strict verdict may reject any cheat for its host code.
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
_OF_HOST_CODE = frozenset({"host_code"})
_TRICKS = _OF_HOST_CODE | frozenset(
    "entry_point imports module_level needs_value state statement torch_compute try_except"
    " vocabulary".split()
)
"""Guards of tricks that lie in host code alone. The launches of such a cheat may hold."""


@dataclass(frozen=True)
class Specimen:
    """One specimen. `source` is the whole file as a candidate's text, header included."""

    kind: Kind
    name: str
    op: str
    title: str
    source: str
    header: Mapping[str, str]

    def runs_on(self, mode: Mode) -> bool:
        """Whether this path can decide it."""
        return mode == "replay" or self.header.get("needs") != "gpu"

    def expected(self, mode: Mode, *, strict: bool = True) -> frozenset[str]:
        """The guards that may reject it, or "accepted"."""
        if self.kind == "gold":
            return frozenset({ACCEPTED})
        guard = self.header["guard"]
        if not strict and "behind the screen" in self.header:
            guard = self.header["behind the screen"]
        elif mode == "replay":
            guard = self.header.get("guard on a GPU", guard)
        tricks = self.kind == "cheats" and _TRICKS.issuperset(self.header["guard"].split("|"))
        if tricks and not strict:
            # The runner still demands the reservation on host code.
            guard = f"{guard}|{ACCEPTED}"
        return frozenset(guard.split("|")) | (
            _OF_HOST_CODE if strict and self.kind == "cheats" else frozenset()
        )


def load(kind: Kind) -> tuple[Specimen, ...]:
    """All specimens of a kind, by name."""
    folder = files("referee.selftest").joinpath(kind)
    found = sorted(
        (entry for entry in folder.iterdir() if entry.name.endswith(SUFFIX)),
        key=lambda entry: entry.name,
    )
    return tuple(
        _specimen(kind, entry.name.removesuffix(SUFFIX), entry.read_text(encoding="utf-8"))
        for entry in found
    )


def _specimen(kind: Kind, name: str, source: str) -> Specimen:
    header: dict[str, str] = {}
    for line in source.splitlines():
        if not line.startswith("# "):
            break
        key, _, value = line[2:].partition(": ")
        header[key] = value
    title = header.get("title") or header.get("slip") or header["structure"]
    return Specimen(kind, name, header["op"], title, source, header)
