"""An agent without a model repairs wrong kernels from the texts of `explain` alone."""

from __future__ import annotations

from pathlib import Path

from mcp import Client

from tests.agent.clients import connected, document, run
from tests.agent.kernels import FLOAT32, GOOD, UNMASKED

MOST_ROUNDS = 4
BOTH = UNMASKED.replace("def run(x):", "def my_softmax(x):")


def patched(source: str, diff: str) -> str:
    """The source with a unified diff applied, which must fit."""
    old, new, at = source.splitlines(), [], 0
    for line in diff.splitlines():
        if line.startswith(("---", "+++")):
            continue
        if line.startswith("@@"):
            start = int(line.split()[1].lstrip("-").partition(",")[0]) - 1
            new += old[at:start]
            at = start
        elif line.startswith("+"):
            new.append(line[1:])
        else:
            assert old[at] == line[1:], line
            new += [old[at]] if line.startswith(" ") else []
            at += 1
    return "\n".join([*new, *old[at:]]) + "\n"


async def repaired(client: Client, source: str, name: str) -> tuple[str, list[str]]:
    """The loop of the skill: judge, explain, repair, judge. Returns the draft that passed, and the
    guards on the way.
    """
    guards: list[str] = []
    for _ in range(MOST_ROUNDS):
        verdict = await document(client, "judge", source=source, op="softmax", session=name)
        if verdict["verdict"] == "correct":
            return str(verdict["draft"]), guards
        why = await document(client, "explain", draft=verdict["draft"])
        guards.append(why["guard"])
        source = patched(source, why["diff"])
    raise AssertionError(f"not repaired after {MOST_ROUNDS} rounds: {guards}")


WRONG = {
    "two_faults": (BOTH, ["entry_point", "out_of_bounds"]),
    "unmasked": (UNMASKED, ["out_of_bounds"]),
    "float32": (FLOAT32, ["output_contract"]),
}


def test_wrong_kernels_are_repaired_and_saved(tmp_path: Path) -> None:
    async def work() -> None:
        async with connected(tmp_path) as client:
            for name, (source, guards) in WRONG.items():
                draft, seen = await repaired(client, source, name)
                assert seen == guards
                saved = await document(client, "save", draft=draft, folder=name)
                assert saved["verdict"]["verdict"] == "correct"
                assert (await document(client, "history", id=draft))["source"] == GOOD

    run(work)
