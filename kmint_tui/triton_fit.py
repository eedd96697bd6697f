"""Runs the canary before an untested version of Triton judges a candidate, once for each
installation.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from convert import files
from kmint_tui import paths
from kmint_tui.errors import EnvironmentUnfit

if TYPE_CHECKING:
    from referee.canary import CanaryReport
    from referee.sandbox.demand import Demand


def check(demand: Demand, tell: Callable[[str], None] = lambda _: None) -> None:
    """Raise EnvironmentUnfit if the canary fails.

    A tested version, and a version that passed before, need no canary.
    """
    report = untested(demand, tell)
    if report is not None and not report.passed:
        raise EnvironmentUnfit(
            f"triton {report.triton} is not a tested version, and the canary failed: "
            f"{report.failures}",
            title="the referee cannot work here",
            fix=f"install a tested version of Triton: {_tested()}",
        )


def untested(demand: Demand, tell: Callable[[str], None] = lambda _: None) -> CanaryReport | None:
    """The canary's report on an untested Triton; None for a tested one, or without any."""
    from referee.versions import UnknownTriton, check_triton, is_tested

    try:
        if is_tested(check_triton()):
            return None
    except UnknownTriton:
        # Every verdict of the referee names the version too.
        return None
    from referee.canary import canary, identity

    kept = _passed_before(identity())
    if kept is not None:
        return kept
    found = canary(
        demand=demand,
        tell=lambda name: tell(
            f"trying triton {check_triton()}, which is not a tested version: {name}"
        ),
    )
    if found.passed:
        _keep(found)
    return found


def _passed_before(identity: str) -> CanaryReport | None:
    """The kept report of this installation, if there is one. Only reports that passed are kept."""
    from referee.canary import CanaryReport, Probe

    try:
        document = json.loads(_file().read_bytes())
        if document["identity"] != identity:
            return None
        return CanaryReport(
            str(document["triton"]),
            identity,
            tuple(Probe(str(one["name"]), True, "") for one in document["probes"]),
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _keep(report: CanaryReport) -> None:
    try:
        _file().parent.mkdir(parents=True, exist_ok=True)
        files.write_text(_file(), json.dumps(report.to_json()))
    except OSError:
        # It then runs again the next time.
        pass


def _file() -> Path:
    return paths.cache_dir() / "referee" / "canary.json"


def _tested() -> str:
    from referee.versions import tested_versions

    return tested_versions()
