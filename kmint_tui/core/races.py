"""Races that are remembered: a kernel that was timed against another one is not timed again.

The times lie in the cache, in a file for each operation, shape, device and set of versions. They
only help to pick a kernel, so a lost or damaged file costs time at most.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kmint_tui.documents import BadDocument, parse_json, read_bytes
from kmint_tui.typed import Mistyped, made

if TYPE_CHECKING:
    from kmint_tui.minting.tuning import Race
    from referee.variant_timing import VariantTime

LARGEST = 8 << 20


class RememberedRace:
    """A race at one shape. `tell` gets the number of kernels before each race that is held."""

    def __init__(self, race: Race, file: Path, tell: Callable[[int], None]) -> None:
        self._race, self._file, self._tell = race, file, tell
        self._known: dict[str, VariantTime] = dict(_read(file))

    def __call__(self, sources: Sequence[str]) -> Sequence[VariantTime]:
        """The times of kernels against the first of them. Passes on the errors of the race."""
        first, *others = sources
        keys = {one: _key(first, one) for one in sources}
        missing = [one for one in others if keys[one] not in self._known]
        if missing or keys[first] not in self._known:
            self._tell(len(missing))
            laps = self._race([first, *missing])
            for source, lap in zip((first, *missing), laps, strict=True):
                self._known[keys[source]] = lap
            self._write()
        return [self._known[keys[one]] for one in sources]

    def _write(self) -> None:
        from convert import files

        content = {key: asdict(lap) for key, lap in self._known.items()}
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            files.write_text(self._file, json.dumps(content, indent=0))


def race_file(folder: Path, *parts: str) -> Path:
    """The file for the races of these parts: operation, shape, device and versions."""
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]
    return folder / "races" / f"{digest}.json"


def _read(file: Path) -> dict[str, Any]:
    from referee.variant_timing import VariantTime

    try:
        content = parse_json(read_bytes(file, most_bytes=LARGEST).decode("utf-8"))
        return {key: made(VariantTime, lap, "a lap") for key, lap in content.items()}
    except (OSError, BadDocument, Mistyped, ValueError, AttributeError, TypeError):
        return {}


def _key(first: str, source: str) -> str:
    return hashlib.sha256(f"{first}\0{source}".encode("utf-8", "replace")).hexdigest()
