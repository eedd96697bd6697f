"""`kmint models pull`: fetch a smith from the hub; `kmint models url`: where its file is, for fetching by other means."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from kmint_tui import paths
from kmint_tui.cli.framework import Command
from kmint_tui.cli.models import complete_model
from kmint_tui.cli.state import State, offline_variable

if TYPE_CHECKING:
    from kmint_tui.models.download import Remote

_REFRESH_SECONDS = 0.2
_UNITS = {"k": 1e3, "m": 1e6, "g": 1e9}


def _rate(context: click.Context, parameter: click.Parameter, text: str | None) -> float | None:
    """Bytes a second of "20M"."""
    if text is None:
        return None
    unit = _UNITS.get(text[-1:].lower(), 1.0)
    number = text[:-1] if text[-1:].lower() in _UNITS else text
    try:
        rate = float(number) * unit
    except ValueError:
        rate = 0.0
    if not rate > 0:
        raise click.BadParameter("a rate such as 500k or 20M (bytes a second)")
    return rate


@click.command("pull", cls=Command)
@click.argument("model", metavar="ID", shell_complete=complete_model)
@click.option("--quant", metavar="TYPE", help="The file type to fetch; without it the first of the model's preferred ones.")
@click.option("--limit-rate", metavar="RATE", callback=_rate, help="Bytes a second at most, such as 20M.")
@click.option("--dry-run", is_flag=True, help="Say what would be fetched, and stop.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.pull/1).")
@click.pass_obj
def pull(state: State, model: str, quant: str | None, limit_rate: float | None, dry_run: bool, as_json: bool) -> None:
    """Fetch a smith from the hub into the store. An interrupted pull goes on where it ended.

    \b
      kmint models pull minicpm5-1b
      kmint models pull minicpm5-1b --quant Q8_0 --limit-rate 20M
    """
    from kmint_tui.models import download, registry
    from kmint_tui.models.check import check

    entry = registry.load(paths.user_models_file()).get(model)
    offline = _offline(state)
    remote = download.find(entry, quant=quant, offline=offline)
    state.err.note(f"{remote.name} of {remote.repo}, {remote.nbytes / 1e9:.2f} GB, licence {remote.licence or 'unknown'}")
    path = None
    if not dry_run:
        folder = paths.private_dir(paths.models_dir() / entry.id)
        path = download.fetch(remote, folder, progress=_Progress(state, remote), limit_rate=limit_rate, offline=offline)
        check(path)
    state.err.clear()
    if as_json:
        content = {"id": entry.id, **vars(remote), "path": str(path) if path else None}
        state.out.document("kmint.pull/1", content)
    elif path is not None:
        state.out.text(str(path))
        proof = "sha256 as published" if remote.sha256 else "size as announced; the hub publishes no sha256 for it"
        state.err.hint(f"{proof}; use it with `kmint mint OP --model {entry.id}`")


@click.command("url", cls=Command)
@click.argument("model", metavar="ID", shell_complete=complete_model)
@click.option("--quant", metavar="TYPE", help="The file type.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.url/1).")
@click.pass_obj
def url(state: State, model: str, quant: str | None, as_json: bool) -> None:
    """Print the address, size and sha256 of a smith's file, to fetch it with other tools and `kmint models import` it."""
    from kmint_tui.models import download, registry

    entry = registry.load(paths.user_models_file()).get(model)
    remote = download.find(entry, quant=quant, offline=_offline(state))
    if as_json:
        state.out.document("kmint.url/1", {"id": entry.id, **vars(remote)})
        return
    state.out.pairs([("url", remote.url), ("size", str(remote.nbytes)), ("sha256", remote.sha256 or "not published")])


def _offline(state: State) -> str | None:
    return "--offline" if state.offline else offline_variable()


class _Progress:
    """One live line with rate and time left, over this run's bytes only."""

    def __init__(self, state: State, remote: Remote) -> None:
        self.state, self.remote = state, remote
        self.started, self.first, self.shown = time.monotonic(), -1, 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self.first < 0:
            self.first = done
        if now - self.shown < _REFRESH_SECONDS:
            return
        self.shown = now
        rate = (done - self.first) / max(now - self.started, 1e-6)
        left = f"{(total - done) / rate:.0f} s left" if rate > 0 else ""
        self.state.err.block([f"  {done / 1e6:.0f} of {total / 1e6:.0f} MB  {rate / 1e6:.1f} MB/s  {left}"])
