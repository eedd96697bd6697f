"""A whole conversion: plan it, write every requested file, verify each, and leave a report beside it.

Types that llama.cpp alone can make (k-quants) go through an F16 file, or BF16 when the weights do not fit F16; that
intermediate is removed unless it was asked for. Everything under its final name is complete and verified as asked.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gguf

from convert import checks
from convert.adapter import Adapter
from convert.architectures import recipe_of
from convert.errors import ConvertError, SpaceError
from convert.importance import Importance, measure
from convert.merge import Merged
from convert.provenance import file_digest, files_digest
from convert.quantize import FILE_TYPES, quantise
from convert.read_vocab import read_vocab
from convert.recipe import Recipe
from convert.report import Report, finish, removed, unproven
from convert.request import Request
from convert.source import Source
from convert.verify import Finding
from convert.vocab import Vocab
from convert.write import DIRECT_TYPES, layout, peak_bytes, write_gguf

Progress = Callable[[str, int, int], None]
# The vocabulary while it is verified: our lists, the tokenizers package's tables and llama.cpp's (bench/convert_vs_peft.py).
_BYTES_A_TOKEN = 2000


@dataclass(frozen=True)
class Plan:
    """What a conversion will need, without writing anything. Sizes in bytes; `files` maps a path to its size or estimate.

    `touched` names the base's tensors that the adapter changes, as the checkpoint names them.
    """

    architecture: str
    tensors: int
    touched: tuple[str, ...]
    parameters: int
    files: Mapping[str, int]
    disk: int
    peak_memory: int
    notes: tuple[str, ...]


class Job:
    """An opened conversion; use as a context manager. Raises ConvertError when base and adapter do not fit each other."""

    def __init__(self, request: Request) -> None:
        unknown = [kind for kind in request.kinds if kind not in DIRECT_TYPES and kind not in FILE_TYPES]
        if unknown or not request.kinds:
            raise ConvertError(
                f"unknown file type {unknown[0] if unknown else ''!r}", f"choose from {', '.join({**DIRECT_TYPES, **FILE_TYPES})}"
            )
        self.request = request
        self._source = Source(request.base)
        self._adapter: Adapter | None = None
        try:
            if request.adapter is not None:
                self._adapter = Adapter(request.adapter, self._source.names, self._source.shape)
            self.merged = Merged(self._source, self._adapter)
            self.recipe: Recipe = recipe_of(self._source.raw_config, self.merged)
            self.vocab: Vocab = read_vocab(request.base, self.recipe.vocab_size, pre=request.pre)
        except BaseException:
            self.close()
            raise

    def plan(self) -> Plan:
        """What running this job will read, write and need."""
        files, notes = {}, list(self.vocab.notes)
        for kind in self.request.kinds:
            direct = layout(self.recipe, kind if kind in DIRECT_TYPES else "Q8_0")
            files[str(self.target(kind))] = direct.total
            notes += direct.fallbacks
            if kind not in DIRECT_TYPES:
                notes.append(f"{kind}: at most the size shown, which is Q8_0's")
        extra = layout(self.recipe, "F16").total if self._intermediate() else 0
        touched = tuple(sorted(self._adapter.changes)) if self._adapter else ()
        reasons = Counter(self.recipe.dropped.values())
        notes += [f"{count} tensor(s) left out: {why}" for why, count in sorted(reasons.items())]
        parameters = sum(_count(rule.shape) for rule in self.recipe.tensors)
        return Plan(
            self.recipe.architecture,
            len(self.recipe.tensors),
            touched,
            parameters,
            files,
            sum(files.values()) + extra,
            peak_bytes() + _BYTES_A_TOKEN * self.recipe.vocab_size,
            tuple(notes),
        )

    def run(self, progress: Progress | None = None, calibration: Sequence[str] = ()) -> tuple[Report, ...]:
        """Write and verify every file; a file gets its name only when proven. Raises VerifyError when a proof fails, SpaceError.

        `calibration` are texts on which an importance matrix is measured for the types that llama.cpp quantises.
        """
        if calibration and self._intermediate() is None:
            raise ConvertError(f"an importance matrix changes nothing for {', '.join(self.request.kinds)}", "choose a type such as Q4_K_M")
        intermediate = self._intermediate()
        scratch = () if intermediate is None else (intermediate, self._importance_path())
        with removed([self.target(kind) for kind in self.request.kinds], *scratch):
            self._require_space()
            provenance = self._provenance()
            reports: dict[str, Report] = {}
            importance: Importance | None = None
            for kind in sorted(self.request.kinds, key=lambda kind: kind not in DIRECT_TYPES):
                path = self.target(kind)
                if kind in DIRECT_TYPES:
                    notes = self._write(unproven(path), kind, provenance, progress)
                else:
                    assert intermediate is not None
                    if not intermediate.exists():
                        self._write(intermediate, self._intermediate_kind(), provenance, progress)
                        importance = self._importance(intermediate, calibration)
                    notes = self._quantise(intermediate, unproven(path), kind, importance)
                reports[kind] = finish(path, kind, self.verify(unproven(path)), notes, provenance)
        return tuple(reports[kind] for kind in self.request.kinds)

    def _require_space(self) -> None:
        folder, needed = self.request.out.parent, self.plan().disk
        try:
            free = shutil.disk_usage(folder).free
        except OSError as error:
            raise SpaceError(f"{folder}: {error.strerror}", "choose an --out in a folder that exists") from None
        if free < needed:
            raise SpaceError(
                f"{folder} has {free / 1e9:.2f} GB free, {needed / 1e9:.2f} GB are needed", "free some space or choose another --out"
            )

    def verify(self, path: Path) -> tuple[Finding, ...]:
        """Prove a finished file again at the request's level."""
        return checks.prove(path, self.request, self.recipe, self.merged)

    def target(self, kind: str) -> Path:
        """The file of one type: `out` itself when only one was asked for, else `out` with the type in its name."""
        out = self.request.out
        return out if len(self.request.kinds) == 1 else out.with_name(f"{out.stem}-{kind}{out.suffix or '.gguf'}")

    def close(self) -> None:
        """Close the base and the adapter."""
        if self._adapter is not None:
            self._adapter.close()
        self._source.close()

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _intermediate(self) -> Path | None:
        needed = any(kind not in DIRECT_TYPES for kind in self.request.kinds)
        return self.request.out.with_name(self.request.out.name + ".intermediate") if needed else None

    def _intermediate_kind(self) -> str:
        """BF16 for a BF16 checkpoint without an adapter (exact), else F16, which keeps more of a small delta."""
        exact = self._adapter is None and all(self._source.dtype(name) == "BF16" for name in self._source.names)
        return "BF16" if exact else "F16"

    def _write(self, path: Path, kind: str, provenance: Mapping[str, str], progress: Progress | None) -> tuple[str, ...]:
        parameters = sum(_count(rule.shape) for rule in self.recipe.tensors)
        size = gguf.size_label(parameters, parameters, 0, 0)
        general = {"general.type": "model", "general.name": self.request.out.stem, "general.size_label": size, **provenance}
        report = None if progress is None else (lambda done, total: progress(self.request.out.name, done, total))
        plan = write_gguf(path, self.recipe, self.vocab.metadata, general, kind, self.merged.rows, report)
        return (*self.vocab.notes, *plan.fallbacks)

    def _importance_path(self) -> Path:
        return self.request.out.with_name(self.request.out.name + ".importance.npz")

    def _importance(self, model: Path, calibration: Sequence[str]) -> Importance | None:
        return measure(model, calibration, self._importance_path()) if calibration else None

    def _quantise(self, intermediate: Path, path: Path, kind: str, importance: Importance | None) -> tuple[str, ...]:
        made = quantise(intermediate, path, kind, importance=importance.path if importance else None)
        types = f"types: {', '.join(f'{name} x{count}' for name, count in sorted(made.types.items()))}"
        if importance is None:
            return (types,)
        return (types, f"importance matrix over {importance.tensors} tensors, measured on {importance.tokens} tokens")

    def _provenance(self) -> dict[str, str]:
        keys = {"kmint.version": self.request.version, "kmint.base_sha256": files_digest(self._source.files)}
        if self._adapter is not None:
            keys["kmint.adapter_sha256"] = file_digest(self._adapter.path)
        return keys


def _count(shape: tuple[int, ...]) -> int:
    product = 1
    for extent in shape:
        product *= extent
    return product
