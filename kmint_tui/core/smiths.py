"""The smiths of the registry: those that are here, their fit in memory, and the way to get others."""

from __future__ import annotations

from dataclasses import dataclass

from kmint_tui import paths
from kmint_tui.errors import ModelError
from kmint_tui.models import registry, store
from kmint_tui.models.check import ModelFile, check
from kmint_tui.models.fit import assess
from kmint_tui.models.registry import ModelEntry

DRAFTS = 8


@dataclass(frozen=True)
class SmithState:
    """One entry of the registry. `state` is "here", "not here" or "refused"; `trouble` holds the
    fix.
    """

    id: str
    title: str
    state: str
    entry: ModelEntry
    file: ModelFile | None
    trouble: str
    fit: str
    fits: bool | None


def known() -> list[SmithState]:
    """Every smith of the registry, the preferred one first. Raises ConfigError."""
    return [_state(entry) for entry in registry.load(paths.user_models_file()).entries]


def usable() -> list[SmithState]:
    """The smiths that are here."""
    return [smith for smith in known() if smith.state == "here"]


def _state(entry: ModelEntry) -> SmithState:
    path = store.installed(entry)
    if path is None:
        return SmithState(
            entry.id, entry.title, "not here", entry, None, store.way_to_get(entry), "", None
        )
    try:
        file = check(path)
    except ModelError as error:
        return SmithState(entry.id, entry.title, "refused", entry, None, error.message, "", None)
    found = assess(file, drafts=DRAFTS, max_tokens=entry.max_tokens)
    fits = None if found.verdict == "unknown" else found.verdict == "fits"
    return SmithState(entry.id, entry.title, "here", entry, file, "", found.text, fits)
