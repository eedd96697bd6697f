"""`kmint workers`: the devices of this host or of a Ray cluster, and their jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kmint_tui.cli.framework import Command
from kmint_tui.cli.options import RAY
from kmint_tui.cli.state import State
from kmint_tui.cli.streams import Table

if TYPE_CHECKING:
    from kmint_tui.core.farm.workers import Overview

_HEADERS = ("host", "device", "kmint", "torch", "triton", "does")


@click.command(cls=Command)
@click.option("--ray", "address", metavar="ADDRESS", help=RAY)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (kmint.workers/1).")
@click.pass_obj
def workers(state: State, address: str | None, as_json: bool) -> None:
    """Show the devices that can judge, their versions, their jobs and the queue.

    \b
      kmint workers
      kmint workers --ray 10.0.0.1:6379

    Without --ray these are the GPUs of this host, or its processors where it has none. Exit code 3
    means that no cluster answers.
    """
    from kmint_tui.core.farm.workers import of_cluster, of_host
    from kmint_tui.core.offline import offline_reason

    found = (
        of_host() if address is None else of_cluster(address, offline_reason(flag=state.offline))
    )
    if as_json:
        state.out.document("kmint.workers/1", found.to_json())
    else:
        _show(state, found)


def _show(state: State, found: Overview) -> None:
    rows: list[tuple[Any, ...]] = []
    for one in found.devices:
        versions = one.versions
        shown = (versions.kmint, versions.torch or "", versions.triton or "") if versions else ()
        rows.append((one.host, one.device, *(shown or ("missing", "", "")), one.does))
    state.out.table(Table(_HEADERS, rows))
    state.out.text("")
    state.out.text(f"queue: {found.queue}")
