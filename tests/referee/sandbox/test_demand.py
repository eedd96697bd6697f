"""How much of the sandbox must be there before anything of a candidate runs."""

from __future__ import annotations

import ast

import pytest

from referee.sandbox.demand import Demand, Protection, unmet, weakness_text
from referee.sandbox.zygote import SandboxTooWeak, Zygote
from tests.architecture.test_imports import modules
from tests.referee.sandbox.support import HOSTILE, LIMITS, NAMESPACES

OPEN_FILES = ("landlock", "private root")
RUNNERS = {"Zygote", "Workers", "Referee", "open_referee", "head_to_head", "time_head_to_head"}


def layers(*without: str) -> tuple[Protection, ...]:
    """Four layers, some of them missing."""
    names = ("mount namespace", "private root", "landlock", "not dumpable")
    return tuple(Protection(name, name not in without, f"why of {name}") for name in names)


@pytest.mark.parametrize(
    ("demand", "without", "reason"),
    [
        ("all", (), ""),
        ("all", ("not dumpable",), "lacks 1 of its 4 layers: not dumpable"),
        ("files", ("landlock", "mount namespace"), ""),
        ("files", ("private root", "mount namespace"), ""),
        ("files", OPEN_FILES, "no landlock: why of landlock; no private root: why of private root"),
        ("any", OPEN_FILES, ""),
    ],
)
def test_what_is_missing_is_weighed_by_the_demand(
    demand: Demand, without: tuple[str, ...], reason: str
) -> None:
    found = unmet(layers(*without), demand)
    assert reason in found and bool(found) == bool(reason)


def test_missing_layers_are_told_in_one_line() -> None:
    assert weakness_text(layers()) == ""
    assert (
        weakness_text(layers("landlock", "not dumpable"))
        == "the sandbox here lacks 2 of its 4 layers: landlock, not dumpable"
    )


@pytest.mark.parametrize(
    ("demand", "without"),
    [("files", OPEN_FILES), ("all", ("thread limit",)), ("all", NAMESPACES)],
    ids=["files", "one", "namespaces"],
)
def test_no_job_runs_where_the_demand_is_not_met(demand: Demand, without: tuple[str, ...]) -> None:
    with Zygote(preload=(), extra_path=(str(HOSTILE),), without=without, demand=demand) as zygote:
        for _ in range(2):
            with pytest.raises(SandboxTooWeak, match=without[0]):
                zygote.run("hostile_resources:echo", b"runs", limits=LIMITS)
        assert zygote._server is None, "a server was started again for nothing"
    with Zygote(preload=(), extra_path=(str(HOSTILE),), without=without, demand="any") as zygote:
        assert zygote.run("hostile_resources:echo", b"runs", limits=LIMITS).data == b"runs"


def test_every_command_passes_on_what_was_asked_for() -> None:
    """Whoever opens workers in the application says how much of the sandbox there must be; doctor's
    probes run our own kernel.
    """
    seen = set()
    for path, tree in modules():
        for node in ast.walk(tree):
            if (
                path.startswith("kmint_tui")
                and isinstance(node, ast.Call)
                and (name := ast.unparse(node.func).split(".")[-1]) in RUNNERS
            ):
                given = {word.arg for word in node.keywords} | (
                    {"demand"} if name == "open_referee" and node.args else set()
                )
                assert "demand" in given or path == "kmint_tui/doctor/kernel.py", (
                    f"{path}:{node.lineno}"
                )
                seen.add(name)
    assert seen >= RUNNERS
