"""A Hugging Face model folder: config.json and safetensors shards, read lazily.

`config.json` is read raw, because transformers fills class defaults into fields that a checkpoint left out or renamed.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from convert.errors import SourceError
from convert.safetensors_file import Floats, SafetensorsFile

_INDEX = "model.safetensors.index.json"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises SourceError naming the file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SourceError(f"{path} is missing", "give the folder of a complete Hugging Face checkpoint") from None
    except (OSError, ValueError, RecursionError) as error:
        raise SourceError(f"{path}: cannot be read as JSON ({error})", "download the file again") from None
    if not isinstance(document, dict):
        raise SourceError(f"{path}: not a JSON object", "download the file again")
    return document


def read_config(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """config.json as it is, and with its `text_config`, if it has one, merged over it."""
    raw = read_json(folder / "config.json")
    text = raw.get("text_config")
    return raw, {**raw, **text} if isinstance(text, dict) else raw


class Source:
    """All tensors of a checkpoint by name. `config` is the raw config with `text_config` merged over it."""

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
            if not isinstance(listed, dict) or not all(isinstance(v, str) and Path(v).name == v for v in listed.values()):
                raise SourceError(f"{index}: no usable weight_map", "download the index again")
            for name, shard in listed.items():
                file = self._file(shard)
                if name not in file.entries:
                    raise SourceError(f"{shard} does not hold {name!r}, which {_INDEX} promises", "download that shard again")
                self._where[name] = file
        else:
            file = self._file("model.safetensors")
            self._where = dict.fromkeys(file.entries, file)

    def _file(self, name: str) -> SafetensorsFile:
        if name not in self._files:
            path = self.folder / name
            if not path.is_file():
                raise SourceError(f"{path} is missing", "download the checkpoint again, all shards of it")
            self._files[name] = SafetensorsFile(path)
        return self._files[name]

    @property
    def names(self) -> frozenset[str]:
        """Every tensor name in the checkpoint."""
        return frozenset(self._where)

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

    def rows(self, name: str, index: slice | npt.NDArray[np.int64] | None = None) -> Floats:
        """Rows along the first axis as float32."""
        return self._where[name].rows(name, index)

    def close(self) -> None:
        """Close every shard."""
        for file in self._files.values():
            file.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
