"""The user's own function as a reference: the options that name it, and its description."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from kmint_tui.errors import UsageError

if TYPE_CHECKING:
    from referee.reference.asked import Asked

_BYTES = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
}


def parse_reference(
    reference: str | None, inputs: Sequence[str] = (), fixed: Sequence[str] = ()
) -> Asked | None:
    """The reference that the options name; None without one.

    Raises UsageError, with the position, for a text that cannot be read.
    """
    if reference is None:
        if inputs or fixed:
            option = "--input" if inputs else "--fix"
            raise UsageError(
                f"{option} is for a reference of your own",
                fix="name it with --reference FILE.py:function",
            )
        return None
    from kmint_tui.core.recorded_call import RecordError, recorded_text
    from referee.reference.asked import Asked, split_reference
    from referee.reference.grammar import parse_fixed, parse_inputs
    from referee.reference.unusable import InputError

    file, function = split_reference(reference)
    try:
        texts = [recorded_text(Path(text[1:])) if text.startswith("@") else text for text in inputs]
        sets = parse_inputs(texts)
        values = parse_fixed(fixed)
    except (InputError, RecordError) as error:
        raise UsageError(
            str(error),
            title="inputs not usable",
            fix="for example --input 'x=bf16[B,4096] w=bf16[4096] eps=1e-6'",
        ) from error
    return Asked(
        str(file),
        function,
        tuple(one.text() for one in sets),
        tuple(f"{name}={value!r}" for name, value in values.items()),
    )


def reference_rows(reference: Asked) -> list[tuple[str, str]]:
    """The arguments, sizes and notes of a reference, as names and texts. Raises UnusableReference."""
    from referee.reference.load import load_reference

    loaded = load_reference(reference)
    arguments = [
        f"{one.name} ({', '.join(f'{value:g}' for value in one.values)})"
        if one.kind == "scalar"
        else one.name
        for one in loaded.arguments
    ]
    fixed = [f"{one.name}={one.value!r} ({one.why})" for one in loaded.fixed]
    sizes, timed = [], []
    for example in loaded.examples:
        family = example.family
        shapes = ", ".join(
            f"{name} {one}"
            for name, one in zip(loaded.tensors, family.at(family.timed), strict=True)
        )
        nbytes = sum(
            prod(spec.shape) * _BYTES.get(spec.dtype, 4)
            for spec in example.specs(loaded.tensors, family.timed)
        )
        timed.append(f"{shapes} ({nbytes / (1 << 30):.2f} GiB)")
        sizes += [family.name(one) for one in example.sizes if family.name(one)]
    return [
        ("arguments", ", ".join(arguments)),
        ("outputs", ", ".join(loaded.outputs)),
        *([("fixed", "; ".join(fixed))] if fixed else []),
        *([("small sizes", "; ".join(sizes))] if sizes else []),
        ("timed sizes", "; ".join(timed)),
        *([("notes", "; ".join(loaded.notes))] if loaded.notes else []),
        ("files", ", ".join(f"{name} {digest[:12]}" for name, digest in loaded.files)),
    ]
