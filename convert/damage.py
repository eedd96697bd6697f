"""Signs of damage in weight files that a sound container does not show.

An interrupted download leaves zeros at the end. A training run that diverged leaves NaN. A careless
save leaves an adapter that changes nothing or lacks a layer. Certain damage is refused; a possible
intention gets a note.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable

from convert.adapter import Adapter
from convert.errors import AdapterError, ConvertError, SourceError
from convert.safetensors_file import Floats, SafetensorsFile

_LAYER = re.compile(r"(?P<before>.*\blayers)\.(?P<number>\d+)\.(?P<module>.+)")
_VOCABULARY = ("embed_tokens.weight", "lm_head.weight")
_PLAIN = frozenset((".lora_A", ".lora_B", ".lora_embedding_A", ".lora_embedding_B"))


def refuse_zero_tails(files: Iterable[SafetensorsFile]) -> tuple[str, ...]:
    """Notes on files that end in zeros, possibly on purpose.

    Raises SourceError for a file whose last matrices are zeros, the mark of an interrupted
    download.
    """
    notes = []
    for file in files:
        entries = [entry for entry in file.entries.values() if entry.stop > entry.start]
        zeros = file.zero_tail()
        if not zeros or not entries:
            continue
        start = max(entry.stop for entry in entries) - zeros
        matrices = [entry for entry in entries if len(entry.shape) > 1]
        hit = [
            entry
            for entry in matrices
            if entry.stop - (entry.stop - entry.start) // entry.shape[0] >= start
        ]
        lost = [entry for entry in hit if not entry.name.endswith(_VOCABULARY)]
        if lost:
            raise SourceError(
                f"{file.path.name} ends in at least {zeros} zero bytes, which cover the end "
                f"of {lost[0].name}",
                "the download was cut short: download that file again",
            )
        # A vocabulary is often padded with rows that no token uses.
        notes += [f"{file.path.name}: the last rows of {entry.name} are zeros" for entry in hit]
    return tuple(notes)


def check_adapter(adapter: Adapter, names: Collection[str]) -> tuple[str, ...]:
    """Notes on an adapter, whose tensors are read for them.

    Raises AdapterError for one that changes nothing, has a layer of zeros in `lora_A`, or lacks a
    layer that its config promises.
    """
    zeros, moving = [], 0
    for name, change in sorted(adapter.changes.items()):
        first, second = _pair(change.parts)
        if first is not None and _is_zero(adapter.file, first):
            raise AdapterError(
                f"{name}: the adapter's lora_A is all zeros, which training does not leave",
                "download the adapter again",
            )
        if second is not None and set(change.parts) <= _PLAIN and _is_zero(adapter.file, second):
            zeros.append(name)
        else:
            moving += 1
    if not moving:
        raise AdapterError(
            f"every lora_B of {adapter.path} is zeros: merging it would change nothing",
            "was it saved before it was trained?",
        )
    _refuse_lost_layers(adapter, names)
    if zeros:
        return (
            f"{len(zeros)} of {len(adapter.changes)} changes are zeros in lora_B, the first "
            f"is {zeros[0]}",
        )
    return ()


def _pair(parts: dict[str, str]) -> tuple[str | None, str | None]:
    """The tensors that begin as noise and as zeros: LoRA's A and B; B and A for an embedding."""
    if ".lora_A" in parts:
        return parts[".lora_A"], parts[".lora_B"]
    if ".lora_embedding_A" in parts:
        return parts[".lora_embedding_B"], parts[".lora_embedding_A"]
    return None, None


def _is_zero(file: SafetensorsFile, key: str) -> bool:
    zero = not file.rows(key).any()
    file.release(key)
    return zero


def _refuse_lost_layers(adapter: Adapter, names: Collection[str]) -> None:
    """PEFT wraps every module of a plain target name, so each needs its tensors in every layer."""
    changed = {
        name.removesuffix(".weight") for name, change in adapter.changes.items() if change.parts
    }
    kinds = {
        (found["before"], found["module"]) for name in changed if (found := _LAYER.fullmatch(name))
    }
    for name in sorted(names):
        found = _LAYER.fullmatch(name.removesuffix(".weight"))
        if found is None or name.removesuffix(".weight") in changed or not name.endswith(".weight"):
            continue
        if (found["before"], found["module"]) in kinds and _is_targeted(
            found["module"], adapter.config.targets
        ):
            raise AdapterError(
                f"the adapter lacks layer {found['number']} of {found['module']}, which "
                "other layers have and its target_modules names",
                "the file is incomplete: download or save the adapter again",
            )


def _is_targeted(module: str, targets: tuple[str, ...]) -> bool:
    return any(module == target or module.endswith(f".{target}") for target in targets)


def sound_range(name: str, piece: Floats) -> tuple[float, float]:
    """The smallest and the largest value. Raises ConvertError for NaN or infinity."""
    if not piece.size:
        return 0.0, 0.0
    # NaN and infinities pass through min and max, which read the piece without a copy.
    low, high = float(piece.min()), float(piece.max())
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ConvertError(
            f"{name} holds NaN or infinity, so the model would write nonsense",
            "the checkpoint or the adapter is damaged: download it again, or take an earlier one",
        )
    return low, high
