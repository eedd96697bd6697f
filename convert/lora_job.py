"""Writing an adapter alone, as a GGUF that llama.cpp applies to its base at run time: plan, write, prove, report.

Of the base only config.json is read; it may lie in the adapter's own folder. Limits: F32, F16 and BF16; what the file
does to a model's logits is not proven here, because that needs the base's GGUF (the tests do it).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from convert.adapter import Adapter
from convert.architectures import Skeleton, recipe_of
from convert.errors import ConvertError, SourceError
from convert.job import Plan, Progress
from convert.lora_file import lora_recipe
from convert.provenance import file_digest
from convert.report import Report, finish, removed, unproven
from convert.request import Request
from convert.safetensors_file import Floats, SafetensorsFile
from convert.source import read_json
from convert.verify import Finding, verify_structure
from convert.write import layout, peak_bytes, write_gguf

KINDS = ("F32", "F16", "BF16")


def base_of(adapter: Path) -> Path:
    """The folder whose config.json describes the adapter's base, from the adapter alone. Raises SourceError."""
    if (adapter / "config.json").is_file():
        return adapter
    named = read_json(adapter / "adapter_config.json").get("base_model_name_or_path")
    if isinstance(named, str) and named and (Path(named) / "config.json").is_file():
        return Path(named)
    raise SourceError(
        f"{adapter} does not say which shapes its base {named!r} has", "give --base with a folder that holds the base's config.json"
    )


class LoraJob:
    """An opened conversion of an adapter alone; `request.base` needs a config.json only. Use as a context manager."""

    def __init__(self, request: Request) -> None:
        if request.adapter is None:
            raise ConvertError("an adapter is needed")
        if request.kinds and not set(request.kinds) <= set(KINDS):
            raise ConvertError(f"an adapter is written as {', '.join(KINDS)}, not {request.kinds[0]}", "choose one with --quant")
        if len(request.kinds) != 1:
            raise ConvertError("an adapter is written as one file", f"choose one of {', '.join(KINDS)} with --quant")
        self.request = request
        base = Skeleton(request.base)
        self._adapter = Adapter(request.adapter, base.names, base.shape)
        self._file = SafetensorsFile(self._adapter.path)
        try:
            made = lora_recipe(recipe_of(base.raw_config, base), self._adapter, self._file)
        except BaseException:
            self.close()
            raise
        self.recipe, self.notes = made.recipe, made.notes

    def plan(self) -> Plan:
        """What running this job will read, write and need."""
        size = layout(self.recipe, self.request.kinds[0]).total
        parameters = sum(int(np.prod(rule.shape, dtype=np.int64)) for rule in self.recipe.tensors)
        tensors = len(self.recipe.tensors)
        files = {str(self.request.out): size}
        touched = tuple(sorted(self._adapter.changes))
        return Plan(self.recipe.architecture, tensors, touched, parameters, files, size, peak_bytes(), self.notes)

    def run(self, progress: Progress | None = None) -> tuple[Report, ...]:
        """Write and verify the file; it gets its name only when proven. Raises VerifyError when the proof fails, SpaceError."""
        out, (kind,) = self.request.out, self.request.kinds
        provenance = {"kmint.version": self.request.version, "kmint.adapter_sha256": file_digest(self._adapter.path)}
        report = None if progress is None else (lambda done, total: progress(out.name, done, total))
        with removed([out]):
            write_gguf(unproven(out), self.recipe, {}, {"general.name": out.stem, **provenance}, kind, self._rows, report)
            return (finish(out, kind, self.verify(unproven(out)), self.notes, provenance),)

    def verify(self, path: Path) -> tuple[Finding, ...]:
        """Prove a finished file again: its tensors against the adapter's."""
        findings = (verify_structure(path, self.recipe, self._rows),)
        if self.request.level == "structure":
            return findings
        return (*findings, Finding(self.request.level, "skipped", "not checked: an adapter alone has no tokenizer and no logits", {}))

    def _rows(self, name: str, rows: npt.NDArray[np.int64]) -> Floats:
        return self._file.rows(name, rows)

    def close(self) -> None:
        """Close the adapter."""
        self._file.close()
        self._adapter.close()

    def __enter__(self) -> LoraJob:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
