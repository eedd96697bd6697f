"""A Hugging Face model folder: config.json and safetensors shards, read lazily.

`config.json` is read raw, because transformers fills class defaults into missing or renamed fields.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from convert import files
from convert.errors import SourceError
from convert.folders import base_config, no_weights, refuse_pointer, refuse_quantised
from convert.json_text import parse_json
from convert.names import BadName, accepted_name
from convert.safetensors_file import Floats, SafetensorsFile

LARGEST_JSON = 1 << 27
_INDEX = "model.safetensors.index.json"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises SourceError with the file's name."""
    try:
        text = files.read_plain(path, most_bytes=LARGEST_JSON)
        refuse_pointer(path)
        document = parse_json(text)
    except FileNotFoundError:
        raise SourceError(
            f"{path} is missing", "give the folder of a complete Hugging Face checkpoint"
        ) from None
    except (OSError, ValueError) as error:
        raise SourceError(
            f"{path}: cannot be read as JSON ({error})", "download the file again"
        ) from None
    if not isinstance(document, dict):
        raise SourceError(f"{path}: not a JSON object", "download the file again")
    return document


def read_config(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The unchanged config.json, and the same merged with its `text_config`, if any.

    Raises SourceError, and ArchitectureError for a checkpoint with quantised weights.
    """
    raw = read_json(base_config(folder))
    text = raw.get("text_config")
    for config in (raw, text):
        if isinstance(config, dict):
            refuse_quantised(config)
    return raw, {**raw, **text} if isinstance(text, dict) else raw


class Source:
    """All tensors of a checkpoint by name. `config` is the raw config merged with `text_config`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.raw_config, self.config = read_config(folder)
        self._files: dict[str, SafetensorsFile] = {}
        self._where: dict[str, SafetensorsFile] = {}
        try:
            self._open()
        except SourceError:
            self.close()
            raise

    def _open(self) -> None:
        index = self.folder / _INDEX
        if index.is_file():
            listed = read_json(index).get("weight_map")
            if not isinstance(listed, dict):
                raise SourceError(f"{index}: no usable weight_map", "download the index again")
            try:
                shards = {name: accepted_name(shard) for name, shard in listed.items()}
            except BadName as error:
                raise SourceError(
                    f"{index}: the shard {error}", "download the index again"
                ) from None
            for name, shard in shards.items():
                file = self._file(shard)
                if name not in file.entries:
                    raise SourceError(
                        f"{shard} does not hold {name!r}, which {_INDEX} promises",
                        "download that shard again",
                    )
                self._where[name] = file
        else:
            file = self._file("model.safetensors")
            self._where = dict.fromkeys(file.entries, file)

    def _file(self, name: str) -> SafetensorsFile:
        if name not in self._files:
            path = self.folder / name
            if not path.is_file():
                raise no_weights(self.folder, name)
            refuse_pointer(path)
            self._files[name] = SafetensorsFile(path)
        return self._files[name]

    @property
    def names(self) -> frozenset[str]:
        """Every tensor name in the checkpoint."""
        return frozenset(self._where)

    @property
    def shards(self) -> tuple[SafetensorsFile, ...]:
        """The opened weight files."""
        return tuple(self._files.values())

    @property
    def files(self) -> tuple[Path, ...]:
        """The weight files, for hashing and disk estimates."""
        return tuple(sorted(file.path for file in self._files.values()))

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape as stored."""
        return self._where[name].entries[name].shape

    def dtype(self, name: str) -> str:
        """A tensor's stored dtype in safetensors' words ("BF16")."""
        return self._where[name].entries[name].dtype

    def require_readable(self, names: Collection[str | None]) -> None:
        """Raise SourceError for one of `names` whose stored type is not a floating-point type."""
        for file in self._files.values():
            unreadable = sorted(file.entries.keys() & set(names) - file.readable)
            if unreadable:
                kind = file.entries[unreadable[0]].dtype
                raise SourceError(
                    f"{file.path.name}: {len(unreadable)} tensors cannot be read as floating-point "
                    f"numbers, the first is {unreadable[0]!r} ({kind})",
                    "give the checkpoint in BF16, F16 or F32",
                )

    def rows(self, name: str, index: slice | npt.NDArray[np.int64] | None = None) -> Floats:
        """Rows along the first axis as float32."""
        return self._where[name].rows(name, index)

    def close(self) -> None:
        """Close every shard."""
        for file in self._files.values():
            file.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
