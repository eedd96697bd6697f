"""`kmint models pull`: fetch a smith from the hub; `kmint models url`: where its file is, for
fetching by other means.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kmint_tui import config, paths
from kmint_tui.cli.framework import Command
from kmint_tui.cli.model_ids import complete_model
from kmint_tui.cli.state import State
from kmint_tui.core.offline import offline_reason
from kmint_tui.errors import KmintError, ModelError

if TYPE_CHECKING:
    from kmint_tui.cli.streams import Diagnostics
    from kmint_tui.models.fit import Fit
    from kmint_tui.models.registry import ModelEntry
    from kmint_tui.models.remote import Remote

_REFRESH_SECONDS = 0.2
_NOTED_SHARE = 0.1
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
@click.argument(
    "model",
    metavar="ID",
    shell_complete=complete_model,
    help="A model; `kmint models ls` lists them.",
)
@click.option(
    "--quant",
    metavar="TYPE",
    help="The file type to fetch; without it the first of the model's preferred ones.",
)
@click.option(
    "--limit-rate", metavar="RATE", callback=_rate, help="Bytes a second at most, such as 20M."
)
@click.option("--dry-run", is_flag=True, help="Name the file to fetch and its size, and stop.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.pull/1).")
@click.pass_obj
def pull(
    state: State,
    model: str,
    quant: str | None,
    limit_rate: float | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Fetch a smith from the hub into the store. An interrupted pull goes on where it ended.

    Its head is looked at first: what kmint cannot run is refused, and whether it fits in memory is
    said, before it is fetched. The card of a model that has one is fetched too, because it says how
    the model is to be prompted.

    \b
      kmint models pull minicpm5-1b
      kmint models pull minicpm5-1b --quant Q8_0 --limit-rate 20M
    """
    from kmint_tui.models import download, hub, registry
    from kmint_tui.models.check import check

    entry = registry.load(paths.user_models_file()).get(model)
    offline = offline_reason(flag=state.offline)
    remote = hub.find(entry, quant=quant, offline=offline)
    err = state.err
    err.note(
        f"{remote.name} of {remote.repo}, {remote.nbytes / 1e9:.2f} GB, licence {remote.licence or 'unknown'}"
    )
    fit = _judge_head(entry, remote, offline)
    err.note(fit.text)
    if entry.revision is None:
        err.note(
            f"models.toml pins no commit of {remote.repo}: {remote.revision} is taken, and again by every later pull"
        )
    path = None
    if not dry_run:
        folder = paths.private_dir(paths.models_dir() / entry.id)
        path = download.fetch(
            remote,
            folder,
            progress=TransferProgress(err, remote),
            limit_rate=limit_rate,
            offline=offline,
        )
        check(path)
    err.clear()
    card = None if dry_run else _pull_card(state, entry, offline)
    if as_json:
        content = {
            "id": entry.id,
            **vars(remote),
            "path": str(path) if path else None,
            "memory": fit.to_json(),
            "card": card,
        }
        state.out.document("kmint.pull/1", content)
    elif path is not None:
        state.out.text(str(path))
        proof = (
            "sha256 as published"
            if remote.sha256
            else "size as announced; the hub publishes no sha256 for it"
        )
        state.err.hint(f"{proof}; use it with `kmint mint OP --model {entry.id}`")


@click.command("url", cls=Command)
@click.argument(
    "model",
    metavar="ID",
    shell_complete=complete_model,
    help="A model; `kmint models ls` lists them.",
)
@click.option("--quant", metavar="TYPE", help="The file type.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.url/1).")
@click.pass_obj
def url(state: State, model: str, quant: str | None, as_json: bool) -> None:
    """Print the address, commit, size and sha256 of a smith's file, to fetch it with other tools
    and `kmint models import` it.
    """
    from kmint_tui.models import hub, registry

    entry = registry.load(paths.user_models_file()).get(model)
    remote = hub.find(entry, quant=quant, offline=offline_reason(flag=state.offline))
    if as_json:
        state.out.document("kmint.url/1", {"id": entry.id, **vars(remote)})
        return
    digest = remote.sha256 or "not published"
    state.out.pairs(
        [
            ("url", remote.url),
            ("commit", remote.revision),
            ("size", str(remote.nbytes)),
            ("sha256", digest),
        ]
    )


def _pull_card(state: State, entry: ModelEntry, offline: str | None) -> str | None:
    """Fetch the card whose prompt the model was trained on; its path, None where none can be had,
    which is said.
    """
    from kmint_tui.models import cards, download, hub

    if entry.card is None:
        return None
    try:
        remote = next(
            (file for file in hub.listing(entry.card, offline=offline) if file.name == cards.NAME),
            None,
        )
        if remote is None:
            raise ModelError(f"{entry.card} has no {cards.NAME}")
        path = download.fetch(
            remote, paths.private_dir(paths.models_dir() / entry.id), offline=offline
        )
        cards.refuse_unreadable(entry)
    except KmintError as error:
        state.err.note(
            f"no prompt from the model's card: {error.message}; kmint's own words are used instead"
        )
        return None
    state.err.note(
        f"the prompt is that of the card of {entry.card}; `kmint models show {entry.id} --prompt` shows it"
    )
    return str(path)


def _judge_head(entry: ModelEntry, remote: Remote, offline: str | None) -> Fit:
    """Whether the file would fit here. Raises ModelError when kmint could not run it."""
    from kmint_tui.models import download
    from kmint_tui.models.check import check_template, facts
    from kmint_tui.models.fit import assess

    header = download.head(remote, offline=offline)
    name = Path(remote.name)
    check_template(name, header)
    drafts = config.load(paths.config_file()).config.mint_drafts
    return assess(facts(name, header), drafts=drafts, max_tokens=entry.max_tokens)


class TransferProgress:
    """Rate and time left, over this run's bytes only: one live line on a terminal, else a line for
    every tenth of the file.
    """

    def __init__(self, err: Diagnostics, remote: Remote) -> None:
        self.err, self.remote = err, remote
        self.started, self.first, self.shown, self.noted = time.monotonic(), -1, 0.0, 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self.first < 0:
            self.first = done
            self.noted = done / total
        if self.err.live and now - self.shown >= _REFRESH_SECONDS:
            self.shown = now
            self.err.block([self._line(done, total, now)])
        elif not self.err.live and done / total - self.noted >= _NOTED_SHARE:
            self.noted = done / total
            self.err.note(self._line(done, total, now))

    def _line(self, done: int, total: int, now: float) -> str:
        rate = (done - self.first) / max(now - self.started, 1e-6)
        left = f"  {_duration((total - done) / rate)} left" if rate > 0 else ""
        return f"  {done / 1e6:.0f} of {total / 1e6:.0f} MB  {rate / 1e6:.1f} MB/s{left}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"{hours} h {minutes:02} min"
        if hours
        else f"{minutes} min {rest:02} s"
        if minutes
        else f"{rest} s"
    )
