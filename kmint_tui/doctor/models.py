"""The store: the models here, their heads, and whether files changed since their import."""

from __future__ import annotations

from collections.abc import Iterator

from kmint_tui import leftovers, paths
from kmint_tui.doctor import machine
from kmint_tui.doctor.finding import Finding, guarded
from kmint_tui.errors import ConfigError, ModelError
from kmint_tui.models import digest, registry, store
from kmint_tui.models.check import check
from kmint_tui.models.fit import readable


def store_probe() -> Iterator[Finding]:
    """Findings on kmint's folders, the quick checks first."""
    yield guarded("disk", machine.disk)
    yield guarded("directories", machine.directories)
    yield guarded("leftovers", unfinished)
    yield from models()
    yield from hashes()


def unfinished() -> Finding:
    """The unfinished files of killed or running processes; kmint's start removed the rest."""
    left = leftovers.found()
    listed = ", ".join(f"{one.path} ({readable(one.nbytes)})" for one in left)
    if any(one.resumable for one in left):
        fix = (
            "`kmint models pull ID` continues a download, `kmint models rm ID` removes it. "
            "kmint removes it after a month."
        )
        return Finding("leftovers", "warn", f"unfinished: {listed}", fix)
    return Finding(
        "leftovers",
        "ok",
        f"in use by another process: {listed}" if left else "no unfinished files",
    )


def models() -> tuple[Finding, ...]:
    """One finding for each model here, and one for the choice between them."""
    try:
        known = registry.load(paths.user_models_file())
    except ConfigError as error:
        return (
            Finding(
                "models",
                "unknown",
                "the list of models cannot be read",
                f"first: {error.fix or error.message}",
            ),
        )
    found: list[Finding] = []
    for entry in known.entries:
        path = store.installed(entry)
        if path is None:
            continue
        name = f"model {entry.id}"
        try:
            file = check(path)
        except ModelError as error:
            again = (
                f"`kmint models rm {entry.id}`, then: {store.way_to_get(entry)}"
                if entry.kind != "package"
                else store.way_to_get(entry)
            )
            found.append(Finding(name, "fail", error.message, again))
        else:
            what = (
                f"{file.path.name}, {file.architecture} {file.quant}, {readable(file.nbytes)}; "
                "head sound"
            )
            found.append(Finding(name, "ok", what))
    try:
        choice = store.choose(known, drafts=8)
        found.append(Finding("models", "ok", f"{choice.id} would be used: {choice.reason}"))
    except ModelError as error:
        found.append(
            Finding(
                "models",
                "fail",
                error.message,
                error.fix or "pull or import a model: `kmint models ls`",
            )
        )
    return tuple(found)


def hashes() -> Iterator[Finding]:
    """One finding for each model here: its sha256 against models.toml and against its import."""
    try:
        known = registry.load(paths.user_models_file())
    except ConfigError:
        return
    for entry in known.entries:
        path = store.installed(entry)
        if path is None:
            continue
        name, pinned = f"hash {entry.id}", entry.sha256.get(path.name)
        try:
            actual = digest.sha256(path, keep=False)
        except OSError as error:
            yield Finding(
                name,
                "fail",
                f"{path.name} cannot be read: {error.strerror}",
                "check its permissions and the disk",
            )
            continue
        wanted = {"models.toml": pinned, "the store": digest.recorded(path)}
        written = {place: value for place, value in wanted.items() if value}
        other = [place for place, value in written.items() if value != actual]
        if other:
            again = (
                f"if you did not intend this: `kmint models rm {entry.id}`, then "
                f"{store.way_to_get(entry)}"
            )
            yield Finding(
                name,
                "fail",
                f"{path.name} differs from the sha256 of {' and '.join(other)}: it is {actual}",
                again,
            )
        else:
            against = f"as in {' and '.join(written)}" if written else "nothing to compare it with"
            yield Finding(name, "ok", f"{path.name}: sha256 {actual[:16]}…, {against}")
