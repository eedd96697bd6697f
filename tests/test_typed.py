"""Values are checked against annotations, and a refusal names the place and both kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypedDict

import pytest

from kmint_tui.typed import Mistyped, made, typed


class Inner(TypedDict):
    name: str
    size: NotRequired[int | None]


@dataclass(frozen=True)
class Outer:
    id: int
    inner: Inner
    ratios: tuple[float, ...] = ()
    kind: Literal["a", "b"] = "a"
    more: Mapping[str, Any] | None = None


def test_values_of_their_types_are_made() -> None:
    document = {"id": 1, "inner": {"name": "x", "other": []}, "ratios": [1, 2.5], "unknown": 3}
    found = made(Outer, document)
    assert found == Outer(1, {"name": "x", "other": []}, (1.0, 2.5))  # type: ignore[typeddict-unknown-key]
    assert [type(ratio) for ratio in found.ratios] == [float, float]
    assert typed({"a": [1, None]}, dict[str, list[int | None]]) == {"a": [1, None]}
    assert typed(None, str | None) is None and typed(True, bool) is True


REFUSED = {
    "no object": ([], "it must be an object, not a list"),
    "missing": ({"inner": {"name": "x"}}, "it lacks 'id'"),
    "text for a number": ({"id": "1"}, "it.id must be a whole number, not text"),
    "a truth for a number": ({"id": True}, "it.id must be a whole number, not true or false"),
    "a fraction": ({"id": 1.5}, "it.id must be a whole number, not a number"),
    "inner missing": ({"id": 1, "inner": {}}, "it.inner lacks 'name'"),
    "inner": ({"id": 1, "inner": {"name": None}}, "it.inner.name must be text, not null"),
    "optional": (
        {"id": 1, "inner": {"name": "x", "size": "y"}},
        "it.inner.size must be a whole number, not text",
    ),
    "item": (
        {"id": 1, "inner": {"name": "x"}, "ratios": [1, "y"]},
        r"it.ratios\[1\] must be a number, not text",
    ),
    "other word": (
        {"id": 1, "inner": {"name": "x"}, "kind": "c"},
        "it.kind must be one of a, b",
    ),
    "optional object": (
        {"id": 1, "inner": {"name": "x"}, "more": []},
        "it.more must be an object, not a list",
    ),
}


@pytest.mark.parametrize(("document", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_names_the_place(document: Any, reason: str) -> None:
    with pytest.raises(Mistyped, match=f"^{reason}$"):
        made(Outer, document)
