"""The documents that describe operations of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from referee.ops import Cell, Op
    from referee.ops.cells import Profile

_ANY_SEED = 0
"""Every seed draws as many cases as any other."""


def ops_document(found: Sequence[Op]) -> dict[str, Any]:
    """The content of a `kmint.ops/1` document."""
    return {"ops": [_summary(op) for op in found]}


def op_document(op: Op) -> dict[str, Any]:
    """The content of a `kmint.op/1` document."""
    profiles = case_lists(op)
    return {
        **_summary(op),
        "cells": {
            profile: [asdict(case) for case in (*cases.fixed, *cases.shown)]
            for profile, cases in profiles.items()
        },
        "cases": {profile: cases.numbers for profile, cases in profiles.items()},
    }


@dataclass(frozen=True)
class CaseList:
    """The cases of a verdict with or without a GPU: the `fixed` ones, those `shown` for
    capabilities, and the numbers of all kinds.
    """

    fixed: tuple[Cell, ...]
    shown: tuple[Cell, ...]
    numbers: dict[str, int]

    @property
    def text(self) -> str:
        """The numbers in one line."""
        numbers = self.numbers
        text = f"{numbers['required']} cases, {numbers['fixed']} fixed and {numbers['drawn']} drawn for each verdict"
        if numbers["interpreted"]:
            text += f"; {numbers['interpreted']} small ones in Triton's interpreter"
        return f"{text}; {numbers['capabilities']} show capabilities"


def case_lists(op: Op) -> dict[str, CaseList]:
    from referee.cases import beside_replay, replayed, without_gpu
    from referee.problem import Problem, capabilities

    subject = Problem(op.name)
    lists: dict[str, CaseList] = {}
    small = len(beside_replay(subject, _ANY_SEED).required)
    profiles: tuple[Profile, ...] = ("cpu", "gpu")
    for profile in profiles:
        cases = (without_gpu if profile == "cpu" else replayed)(subject, _ANY_SEED)
        numbers = {
            "required": len(cases.required),
            "fixed": len(cases.fixed),
            "drawn": len(cases.drawn),
            "interpreted": small if profile == "gpu" else 0,
            "capabilities": len(cases.capabilities),
        }
        lists[profile] = CaseList(cases.fixed, tuple(capabilities(subject.cells(profile))), numbers)
    return lists


def _summary(op: Op) -> dict[str, Any]:
    from kmint_tui.core.op_search import other_words
    from referee.ops import card_text, signature

    return {
        **asdict(op),
        "arguments": list(signature(op)),
        "signature": card_text(op).signature,
        "other_words": list(other_words(op)),
    }
