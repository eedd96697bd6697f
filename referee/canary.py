"""Checks whether the referee works with a version of Triton that kmint was not tested with.

Each probe judges known kernels that use one private interface of Triton. A probe passes if every
verdict is the expected one: right kernels are accepted, and each wrong one fails at its intended
guard.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from referee.gpu.replayer import Replayer
from referee.sandbox.demand import Demand
from referee.selftest.runner import Result, run, specimens
from referee.verdict import Mode
from referee.versions import check_triton

SCHEMA = "kmint.canary/1"
# The kernels of each probe; at least one is right, and one is wrong where the interface could hide
# either.
_INTERPRETED: dict[str, tuple[str, ...]] = {
    "launches and compiler": (
        "autotuned_rmsnorm_relu6",
        "heuristics_layernorm_abs",
        "autotuned_wrong_config",
    ),
    "interpreter's values": ("libdevice_softcap_softmax", "rmsnorm_bf16_sum", "softmax_block_8192"),
    "interpreter's memory": (
        "softmax_unmasked_store",
        "layernorm_masked_lanes",
        "softmax_overwrites_input",
    ),
    "interpreter's order": ("atomic_l2norm", "l2norm_racing_sum"),
}
_REPLAYED: dict[str, tuple[str, ...]] = {
    "replay on the GPU": ("autotuned_rmsnorm_relu6", "atomic_l2norm", "softmax_mask_short"),
}


@dataclass(frozen=True)
class Probe:
    """One private interface. `detail` is empty for a probe that passed."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class CanaryReport:
    """The results of all probes. `identity` changes with the installation."""

    triton: str
    identity: str
    probes: tuple[Probe, ...]

    @property
    def passed(self) -> bool:
        """True if every probe passed."""
        return bool(self.probes) and all(probe.passed for probe in self.probes)

    @property
    def failures(self) -> str:
        """The failed probes, in words."""
        return "; ".join(
            f"{probe.name}: {probe.detail}" for probe in self.probes if not probe.passed
        )

    def to_json(self) -> dict[str, Any]:
        """The `kmint.canary/1` document."""
        return {"schema": SCHEMA, **asdict(self)}


def identity() -> str:
    """The installation that a report describes. Raises UnknownTriton."""
    found = check_triton()
    spec = find_spec("triton")
    place = Path(spec.origin) if spec is not None and spec.origin is not None else Path()
    return (
        f"kmint {version('kmint')}, torch {version('torch')}, triton {found} of "
        f"{place.stat().st_mtime_ns} in {place.parent}"
    )


def canary(
    *, demand: Demand = "files", tell: Callable[[str], None] = lambda _: None
) -> CanaryReport:
    """Runs every probe, in some seconds on a quiet machine. `tell` is called with each probe's name
    first.

    Raises UnknownTriton.
    """
    about, found = identity(), check_triton()
    groups: list[tuple[Mode, dict[str, tuple[str, ...]]]] = [("interpret", _INTERPRETED)]
    if Replayer.available() is None:
        groups.append(("replay", _REPLAYED))
    probes = []
    for mode, named in groups:
        for name, kernels in named.items():
            tell(name)
            chosen = [specimen for specimen in specimens() if specimen.name in kernels]
            if len(chosen) != len(kernels):
                raise LookupError(f"the canary's kernels are not all there: {', '.join(kernels)}")
            results = run(chosen, mode=mode, behind=False, demand=demand).results
            wrong = [one for one in results if one.status != "right"]
            probes.append(Probe(name, not wrong, "; ".join(map(_told, wrong))))
    return CanaryReport(found, about, tuple(probes))


def _told(result: Result) -> str:
    wanted = " or ".join(result.expected)
    return f"{result.name} should be {wanted} and is {result.guard}: {result.reason}"
