"""The store: which models are here, and whether their heads are sound. Weights are not read: `kmint models verify` does."""

from __future__ import annotations

from kmint_tui import paths
from kmint_tui.doctor.finding import Finding
from kmint_tui.errors import ConfigError, ModelError
from kmint_tui.models import registry, store
from kmint_tui.models.check import check
from kmint_tui.models.fit import readable


def models() -> tuple[Finding, ...]:
    """One finding for each model that is here, and one for the choice between them."""
    try:
        known = registry.load(paths.user_models_file())
    except ConfigError as error:
        return (Finding("models", "unknown", "the list of models cannot be read", f"first: {error.fix or error.message}"),)
    found: list[Finding] = []
    for entry in known.entries:
        path = store.installed(entry)
        if path is None:
            continue
        name = f"model {entry.id}"
        try:
            file = check(path)
        except ModelError as error:
            again = f"`kmint models rm {entry.id}`, then: {store.way_to_get(entry)}" if entry.kind != "package" else store.way_to_get(entry)
            found.append(Finding(name, "fail", error.message, again))
        else:
            what = f"{file.path.name}, {file.architecture} {file.quant}, {readable(file.nbytes)}; head sound, digest not checked"
            found.append(Finding(name, "ok", what))
    try:
        choice = store.choose(known, drafts=8)
        found.append(Finding("models", "ok", f"{choice.id} would be used: {choice.reason}"))
    except ModelError as error:
        found.append(Finding("models", "fail", error.message, error.fix or "pull or import a model: `kmint models ls`"))
    return tuple(found)
