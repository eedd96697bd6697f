"""A whole conversion: plan it, write every requested file, verify each, and write a report.

Types that llama.cpp alone can make (k-quants) need an intermediate F16 file, or BF16 when the
weights do not fit F16. It is removed unless the user wants it. Every file under its final name is
complete and verified.
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
from convert.architectures import left_out_by, recipe_of
from convert.damage import check_adapter, refuse_zero_tails
from convert.errors import ConvertError, SpaceError
from convert.folders import refuse_quantised_tensors
from convert.importance import Importance, measure
from convert.merge import Merged
from convert.provenance import file_digest, files_digest
from convert.quantize import FILE_TYPES, quantise
from convert.read_vocab import read_vocab
from convert.recipe import Recipe
from convert.report import Report, finish, workshop
from convert.request import ConvertRequest
from convert.source import Source
from convert.special_tokens import TokenizerHome
from convert.verify import Proof
from convert.vocab import Vocab
from convert.write import DIRECT_TYPES, layout, peak_bytes, write_gguf

Progress = Callable[[str, int, int], None]
# The vocabulary during verification: kmint's lists, the tables of the tokenizers package and
# llama.cpp's (bench/convert_vs_peft.py).
_BYTES_A_TOKEN = 2000


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The needs of a conversion. Sizes in bytes; `files` maps a path to its size or estimate.

    `touched` are the base's tensors that the adapter changes, under the checkpoint's names.
    """

    architecture: str
    tensors: int
    touched: tuple[str, ...]
    parameters: int
    files: Mapping[str, int]
    disk: int
    peak_memory: int
    notes: tuple[str, ...]


class ConvertJob:
    """An opened conversion; use it as a context manager.

    Raises ConvertError when base and adapter do not fit each other.
    """

    def __init__(self, request: ConvertRequest) -> None:
        unknown = [
            kind for kind in request.kinds if kind not in DIRECT_TYPES and kind not in FILE_TYPES
        ]
        if unknown or not request.kinds:
            raise ConvertError(
                f"unknown file type {unknown[0] if unknown else ''!r}",
                f"choose from {', '.join({**DIRECT_TYPES, **FILE_TYPES})}",
            )
        self.request = request
        self._source = Source(request.base)
        self._adapter: Adapter | None = None
        self.notes: tuple[str, ...] = ()
        try:
            refuse_quantised_tensors(self._source.names)
            self.notes += refuse_zero_tails(self._source.shards)
            if request.adapter is not None:
                left_out = left_out_by(self._source.raw_config)
                self._adapter = Adapter(
                    request.adapter, self._source.names, self._source.shape, left_out
                )
                self.notes += self._adapter.notes
                self.notes += check_adapter(self._adapter, self._source.names)
            self.merged = Merged(self._source, self._adapter)
            self.notes += self.merged.notes
            self.recipe: Recipe = recipe_of(self._source.raw_config, self.merged)
            self._source.require_readable({rule.source for rule in self.recipe.tensors})
            home = TokenizerHome.of(request.base, request.adapter)
            if home.folder != home.base:
                self.notes += ("tokenizer and chat template are those of the adapter's folder",)
            self.vocab: Vocab = read_vocab(home, self.recipe.vocab_size, pre=request.pre)
        except BaseException:
            self.close()
            raise

    def plan(self) -> Plan:
        """The input, output and needs of this job; writes nothing."""
        files, notes = {}, [*self.notes, *self.vocab.notes]
        for kind in self.request.kinds:
            direct = layout(self.recipe, kind if kind in DIRECT_TYPES else "Q8_0")
            files[str(self.target(kind))] = direct.total
            notes += direct.fallbacks
            if kind not in DIRECT_TYPES:
                notes.append(f"{kind}: at most the size shown, which is Q8_0's")
        extra = layout(self.recipe, "F16").total if self._needs_intermediate() else 0
        touched = tuple(sorted(self._adapter.changes)) if self._adapter else ()
        reasons = Counter(self.recipe.dropped.values())
        notes += [f"{count} tensor(s) left out: {why}" for why, count in sorted(reasons.items())]
        parameters = sum(_count(rule.shape) for rule in self.recipe.tensors)
        return Plan(
            architecture=self.recipe.architecture,
            tensors=len(self.recipe.tensors),
            touched=touched,
            parameters=parameters,
            files=files,
            disk=sum(files.values()) + extra,
            peak_memory=peak_bytes() + _BYTES_A_TOKEN * self.recipe.vocab_size,
            notes=tuple(notes),
        )

    def run(
        self, progress: Progress | None = None, calibration: Sequence[str] = ()
    ) -> tuple[Report, ...]:
        """Write and verify every file; a file gets its name only when proven.

        `calibration` are texts for the importance matrix of the types that llama.cpp quantises.
        Raises VerifyError when a proof fails, SpaceError.
        """
        if calibration and not self._needs_intermediate():
            raise ConvertError(
                f"an importance matrix changes nothing for {', '.join(self.request.kinds)}",
                "choose a type such as Q4_K_M",
            )
        with workshop(self.target(kind) for kind in self.request.kinds) as folder:
            self._require_space()
            proven = checks.prove_vocabulary(folder, self.request, self.recipe, self.vocab)
            intermediate = folder / "intermediate.gguf"
            provenance = self._provenance()
            reports: dict[str, Report] = {}
            importance: Importance | None = None
            for kind in sorted(self.request.kinds, key=lambda kind: kind not in DIRECT_TYPES):
                path = self.target(kind)
                made = folder / "made.gguf"
                if kind in DIRECT_TYPES:
                    notes = self._write(made, kind, provenance, progress)
                else:
                    if not intermediate.exists():
                        self._write(intermediate, self._intermediate_kind(), provenance, progress)
                        importance = (
                            measure(intermediate, calibration, folder / "importance.npz")
                            if calibration
                            else None
                        )
                    notes = self._quantise(intermediate, made, kind, importance)
                reports[kind] = finish(
                    made, path, kind, self.verify(made, proven), notes, provenance
                )
        return tuple(reports[kind] for kind in self.request.kinds)

    def _require_space(self) -> None:
        folder, needed = self.request.out.parent, self.plan().disk
        try:
            free = shutil.disk_usage(folder).free
        except OSError as error:
            raise SpaceError(
                f"{folder}: {error.strerror}", "choose an --out in a folder that exists"
            ) from None
        if free < needed:
            raise SpaceError(
                f"{folder} has {free / 1e9:.2f} GB free, {needed / 1e9:.2f} GB are needed",
                "free some space or choose another --out",
            )

    def verify(
        self, path: Path, proven: checks.ProvenVocabulary | None = None
    ) -> tuple[Proof, ...]:
        """Prove a finished file at the request's level; `proven` is an earlier proof of the
        vocabulary.
        """
        return checks.prove(path, self.request, self.recipe, self.merged, self.vocab, proven)

    def target(self, kind: str) -> Path:
        """The file of one type: `out` itself for a single type, else `out` with the type in its
        name.
        """
        out = self.request.out
        return (
            out
            if len(self.request.kinds) == 1
            else out.with_name(f"{out.stem}-{kind}{out.suffix or '.gguf'}")
        )

    def close(self) -> None:
        """Close the base and the adapter."""
        if self._adapter is not None:
            self._adapter.close()
        self._source.close()

    def __enter__(self) -> ConvertJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _needs_intermediate(self) -> bool:
        return any(kind not in DIRECT_TYPES for kind in self.request.kinds)

    def _intermediate_kind(self) -> str:
        """BF16 for a BF16 checkpoint without an adapter (exact), else F16, which keeps small deltas
        better.
        """
        exact = self._adapter is None and all(
            self._source.dtype(name) == "BF16" for name in self._source.names
        )
        return "BF16" if exact else "F16"

    def _write(
        self, path: Path, kind: str, provenance: Mapping[str, str], progress: Progress | None
    ) -> tuple[str, ...]:
        parameters = sum(_count(rule.shape) for rule in self.recipe.tensors)
        size = gguf.size_label(parameters, parameters, 0, 0)
        general = {
            "general.type": "model",
            "general.name": self.request.out.stem,
            "general.size_label": size,
            **provenance,
        }
        report = (
            None
            if progress is None
            else (lambda done, total: progress(self.request.out.name, done, total))
        )
        plan = write_gguf(
            path, self.recipe, self.vocab.metadata, general, kind, self.merged.rows, report
        )
        return (*self.notes, *self.vocab.notes, *plan.fallbacks)

    def _quantise(
        self, intermediate: Path, path: Path, kind: str, importance: Importance | None
    ) -> tuple[str, ...]:
        made = quantise(
            intermediate, path, kind, importance=importance.path if importance else None
        )
        types = (
            f"types: {', '.join(f'{name} x{count}' for name, count in sorted(made.types.items()))}"
        )
        if importance is None:
            return (types, *self.notes)
        return (
            types,
            *self.notes,
            f"importance matrix over {importance.tensors} tensors, measured on "
            f"{importance.tokens} tokens",
        )

    def _provenance(self) -> dict[str, str]:
        keys = {
            "kmint.version": self.request.version,
            "kmint.base_sha256": files_digest(self._source.files),
        }
        if self._adapter is not None:
            keys["kmint.adapter_sha256"] = file_digest(self._adapter.path)
        return keys


def _count(shape: tuple[int, ...]) -> int:
    product = 1
    for extent in shape:
        product *= extent
    return product
