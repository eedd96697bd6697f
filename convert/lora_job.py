"""Writes an adapter alone, as a GGUF for llama.cpp: plan, write, prove, report.

Only config.json of the base is read; it may lie in the adapter's own folder. Limits: F32, F16 and
BF16. The file's effect on a model's logits is not proven here, because that needs the base's GGUF
(the tests do it).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from convert.adapter import Adapter
from convert.architectures import Skeleton, left_out_by, recipe_of
from convert.damage import check_adapter
from convert.errors import ConvertError, SourceError
from convert.folders import adapter_files
from convert.job import Plan, Progress
from convert.lora_file import lora_recipe
from convert.provenance import file_digest
from convert.report import Report, finish, workshop
from convert.request import ConvertRequest
from convert.safetensors_file import Floats, SafetensorsFile
from convert.source import read_json
from convert.verify import Proof, verify_structure
from convert.write import layout, peak_bytes, write_gguf

KINDS = ("F32", "F16", "BF16")


def base_of(adapter: Path) -> Path:
    """The folder whose config.json describes the adapter's base. Raises SourceError."""
    config, _ = adapter_files(adapter)
    if (adapter / "config.json").is_file():
        return adapter
    named = read_json(config).get("base_model_name_or_path")
    if isinstance(named, str) and named and (Path(named) / "config.json").is_file():
        return Path(named)
    raise SourceError(
        f"{adapter} does not say which shapes its base {named!r} has",
        "give --base with a folder that holds the base's config.json",
    )


class LoraJob:
    """An opened conversion of an adapter alone; `request.base` needs a config.json only.

    Use it as a context manager.
    """

    def __init__(self, request: ConvertRequest) -> None:
        if request.adapter is None:
            raise ConvertError("an adapter is needed")
        if request.kinds and not set(request.kinds) <= set(KINDS):
            raise ConvertError(
                f"an adapter is written as {', '.join(KINDS)}, not {request.kinds[0]}",
                "choose one with --quant",
            )
        if len(request.kinds) != 1:
            raise ConvertError(
                "an adapter is written as one file",
                f"choose one of {', '.join(KINDS)} with --quant",
            )
        self.request = request
        base = Skeleton(request.base)
        left_out = left_out_by(base.raw_config)
        self._adapter = Adapter(request.adapter, base.names, base.shape, left_out)
        self._file = SafetensorsFile(self._adapter.path)
        try:
            damaged = check_adapter(self._adapter, base.names)
            made = lora_recipe(recipe_of(base.raw_config, base), self._adapter, self._file)
        except BaseException:
            self.close()
            raise
        self.recipe = made.recipe
        self.notes = (*self._adapter.notes, *damaged, *made.notes)

    def plan(self) -> Plan:
        """The input, output and needs of this job."""
        size = layout(self.recipe, self.request.kinds[0]).total
        parameters = sum(int(np.prod(rule.shape, dtype=np.int64)) for rule in self.recipe.tensors)
        tensors = len(self.recipe.tensors)
        files = {str(self.request.out): size}
        touched = tuple(sorted(self._adapter.changes))
        return Plan(
            architecture=self.recipe.architecture,
            tensors=tensors,
            touched=touched,
            parameters=parameters,
            files=files,
            disk=size,
            peak_memory=peak_bytes(),
            notes=self.notes,
        )

    def run(self, progress: Progress | None = None) -> tuple[Report, ...]:
        """Write and verify the file; it gets its name only when proven.

        Raises VerifyError when the proof fails, SpaceError.
        """
        out, (kind,) = self.request.out, self.request.kinds
        provenance = {
            "kmint.version": self.request.version,
            "kmint.adapter_sha256": file_digest(self._adapter.path),
        }
        report = None if progress is None else (lambda done, total: progress(out.name, done, total))
        with workshop([out]) as folder:
            made = folder / out.name
            write_gguf(
                made,
                self.recipe,
                {},
                {"general.name": out.stem, **provenance},
                kind,
                self._rows,
                report,
            )
            return (finish(made, out, kind, self.verify(made), self.notes, provenance),)

    def verify(self, path: Path) -> tuple[Proof, ...]:
        """Prove a finished file again: its tensors against the adapter's."""
        findings = (verify_structure(path, self.recipe, self._rows),)
        if self.request.level == "structure":
            return findings
        return (
            *findings,
            Proof(
                self.request.level,
                "skipped",
                "not checked: an adapter alone has no tokenizer and no logits",
                {},
            ),
        )

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
