"""The figures of drafts and their rewards: shares, structures and speed by shape class."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from forge.drafting import Draft
from forge.judging import Key, Reward
from forge.places import Place
from forge.selection import structure_of


def figures_of(
    places: Sequence[Place], drafts: Sequence[Draft], rewards: Mapping[Key, Reward]
) -> dict[str, Any]:
    """The figures of drafts over all places and by shape class.

    A draft counts as often as the model gave it. `judged` leaves out drafts without a verdict.
    `share_with_kernel` is that of operations and functions with a right kernel at some shape.
    `speed` is the geometric mean, over the places with a timed kernel, of the fastest right
    kernel's ratio; `speed_of_right` that of the mean ratio of all right drafts of a place. Both are
    None where nothing was timed. `fastest` has the largest ratio of each place.
    """
    by_class: dict[str, list[Place]] = {}
    for place in places:
        by_class.setdefault(place.shape_class, []).append(place)
    return {
        **_part(places, drafts, rewards),
        "fastest": _fastest(places, drafts, rewards),
        "by_class": {name: _part(some, drafts, rewards) for name, some in sorted(by_class.items())},
    }


def _part(
    places: Sequence[Place], drafts: Sequence[Draft], rewards: Mapping[Key, Reward]
) -> dict[str, Any]:
    of = {place.name: place.of for place in places}
    own = [one for one in drafts if one.place in of]
    judged = [(one, rewards[key]) for one in own if (key := (one.place, one.same)) in rewards]
    right = [(one, reward) for one, reward in judged if reward.right]
    ratios: dict[str, list[float]] = {}
    for one, reward in right:
        if reward.ratio is not None:
            ratios.setdefault(one.place, []).append(reward.ratio)
    names = set(of.values())
    return {
        "places": len(places),
        "drafts": len(own),
        "judged": len(judged),
        "different": len({(one.place, one.same) for one, _ in judged}),
        "right": len(right),
        "share_right": _share(len(right), len(judged)),
        "operations": len(names),
        "share_with_kernel": _share(len({of[one.place] for one, _ in right}), len(names)),
        "structures": dict(Counter(structure_of(one.answer) for one, _ in right).most_common()),
        "timed_places": len(ratios),
        "speed": _mean([max(some) for some in ratios.values()]),
        "speed_of_right": _mean([statistics.geometric_mean(some) for some in ratios.values()]),
    }


def _fastest(
    places: Sequence[Place], drafts: Sequence[Draft], rewards: Mapping[Key, Reward]
) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in drafts:
        reward = rewards.get((one.place, one.same))
        if reward is not None and reward.right and reward.ratio is not None:
            found[one.place] = max(found.get(one.place, 0.0), reward.ratio)
    return {place.name: found[place.name] for place in places if place.name in found}


def change(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """From one model to the next over the same places.

    `faster` is the geometric mean of the fastest kernels' new ratio over the old one, at the
    places that are timed in both; None where there is none.
    """
    old, new = before["fastest"], after["fastest"]
    shares = {
        name: [before[name], after[name]]
        for name in ("share_right", "share_with_kernel", "speed", "speed_of_right")
    }
    return {**shares, "faster": _mean([new[name] / old[name] for name in old if name in new])}


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _mean(ratios: Sequence[float]) -> float | None:
    return round(statistics.geometric_mean(ratios), 4) if ratios else None


def in_words(figures: Mapping[str, Any]) -> str:
    """The figures in one line, and a line for each shape class."""
    lines = [_line("all shapes", figures)]
    lines += [_line(name, one) for name, one in figures["by_class"].items()]
    return "\n".join(lines)


def _line(name: str, one: Mapping[str, Any]) -> str:
    speed = (
        ""
        if one["speed"] is None
        else (f", fastest {one['speed']:.3f}x, mean right draft {one['speed_of_right']:.3f}x")
    )
    structures = ", ".join(f"{count} {kind}" for kind, count in one["structures"].items())
    return (
        f"  {name}: {one['right']} of {one['judged']} judged drafts right, "
        f"{one['different']} different; kernels for {one['share_with_kernel'] or 0:.0%} of "
        f"{one['operations']}{speed}; {structures or 'nothing right'}"
    )
