"""The models on this machine, and the choice among them.

A model lives in the store's folder of its id, under any file name; the embedded smith lives inside
the package. A requested model is used or refused, never replaced. An automatic choice carries its
reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from kmint_tui import paths
from kmint_tui.errors import ModelError
from kmint_tui.memory import free_memory
from kmint_tui.models.check import ModelFile, check, check_template
from kmint_tui.models.fit import assess
from kmint_tui.models.registry import ModelEntry, Registry

EMBEDDED = "embedded"


@dataclass(frozen=True)
class Choice:
    """The model to use. `entry` is its registry entry, or None for an unknown file."""

    id: str
    file: ModelFile
    entry: ModelEntry | None
    reason: str


def installed(entry: ModelEntry) -> Path | None:
    """The entry's file in the store (or in the package), by quant preference; None without one."""
    folder = _embedded_dir() if entry.kind == "package" else paths.models_dir() / entry.id
    found = (
        sorted(path for path in folder.glob("*.gguf") if path.is_file()) if folder.is_dir() else []
    )
    for quant in entry.quants:
        for path in found:
            if quant.lower() in path.name.lower():
                return path
    return found[0] if found else None


def resolve(registry: Registry, wanted: str) -> Choice:
    """The model of that id or path. Raises ModelError for an unknown, missing or unusable one.

    A file by its path gets the same checks as an imported file.
    """
    entry = registry.find(wanted)
    if entry is None:
        path = paths.expanded(wanted)
        if path.exists() or wanted.endswith(".gguf") or "/" in wanted:
            file = check(path)
            check_template(path)
            return Choice(str(path), file, None, "named by path")
        entry = registry.get(wanted)
    found = installed(entry)
    if found is None:
        raise ModelError(f"{entry.id} ({entry.title}) is not in the store", fix=way_to_get(entry))
    return Choice(entry.id, check(found), entry, "named")


def choose(registry: Registry, *, drafts: int) -> Choice:
    """The best usable smith here that fits in memory, else the embedded one.

    Raises ModelError when that one is not usable either.
    """
    passed_over: list[str] = []
    embedded, here = registry.get(EMBEDDED), free_memory()
    for entry in registry.entries:
        path = installed(entry)
        if entry.rank <= embedded.rank or path is None:
            continue
        try:
            file = check(path)
        except ModelError as error:
            passed_over.append(f"{entry.id}: {error.message}")
            continue
        fit = assess(file, drafts=drafts, max_tokens=entry.max_tokens, here=here)
        if fit.verdict not in ("fits", "unknown"):
            passed_over.append(f"{entry.id} {fit.text}")
            continue
        how = "that fits" if fit.verdict == "fits" else "(it is unknown whether it fits)"
        return Choice(
            entry.id, file, entry, "; ".join([f"the best smith in the store {how}", *passed_over])
        )
    found = installed(embedded)
    if found is None:
        raise ModelError(
            "this installation carries no embedded smith, and no other is in the store",
            fix="install kmint again, or give --model",
        )
    reason = "; ".join(passed_over) or "no larger smith is in the store"
    return Choice(embedded.id, check(found), embedded, reason)


def _embedded_dir() -> Path:
    return Path(str(resources.files("kmint_tui"))) / "smith" / "embedded"


def way_to_get(entry: ModelEntry) -> str:
    """How to get a model that is not here."""
    where = paths.models_dir() / entry.id
    if entry.kind == "package":
        return "install kmint again: its own smith is missing from the package"
    if entry.kind == "made":
        return f"make it with `kmint convert`, or put a GGUF file into {where}"
    return (
        f"`kmint models pull {entry.id}`, or `kmint models import FILE` with a GGUF of {entry.repo}"
    )
