"""Recognises a given folder, and refuses a wrong one with the reason.

Users give a file for its folder, an adapter for a base, or a training run for the adapter in it.
They also give weights in another format, or pointers of Git LFS for the files. Each case gets its
own sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from convert.errors import AdapterError, ArchitectureError, SourceError

_LFS = b"version https://git-lfs.github.com/spec/"
_PICKLED = (".bin", ".pt", ".pth")
_PACKED = (
    ".qweight",
    ".qzeros",
    ".weight_packed",
    ".weight_scale",
    ".weight_scale_inv",
    ".absmax",
    ".quant_map",
    ".biases",
)
_QUANTISED = {
    "gptq": "GPTQ",
    "awq": "AWQ",
    "fp8": "FP8",
    "bitsandbytes": "bitsandbytes",
    "compressed-tensors": "compressed-tensors",
}


def adapter_files(folder: Path) -> tuple[Path, Path]:
    """adapter_config.json and adapter_model.safetensors of an adapter's folder.

    Raises SourceError with the real nature of another folder.
    """
    require_folder(folder, "the adapter")
    config, weights = folder / "adapter_config.json", folder / "adapter_model.safetensors"
    if not config.exists():
        raise SourceError(f"{folder} holds no adapter_config.json", _instead_of_adapter(folder))
    if weights.is_file():
        refuse_pointer(weights)
        return config, weights
    if (folder / "adapters.safetensors").is_file():
        raise AdapterError(
            f"{folder} holds an adapter of MLX (adapters.safetensors); kmint reads PEFT's",
            "fuse it with `mlx_lm.fuse` and convert the fused checkpoint",
        )
    raise SourceError(f"{weights} is missing", _pickled(folder) or "download the adapter again")


def base_config(folder: Path) -> Path:
    """config.json of a checkpoint's folder.

    Raises SourceError with the real nature of another folder.
    """
    require_folder(folder, "the base")
    config = folder / "config.json"
    if not config.exists():
        fix = "give the folder of a complete Hugging Face checkpoint"
        if (folder / "adapter_config.json").is_file():
            fix = (
                "this folder holds an adapter: give it with --adapter, and its base model with "
                "--base"
            )
        raise SourceError(f"{config} is missing", fix)
    return config


def no_weights(folder: Path, wanted: str) -> SourceError:
    """The refusal of a checkpoint without the weights file `wanted`."""
    fix = _pickled(folder)
    if fix is None and (folder / "adapter_model.safetensors").is_file():
        fix = "this folder holds an adapter: give it with --adapter, and its base model with --base"
    if fix is None and any(folder.glob("*.gguf")):
        fix = "the folder holds a GGUF already: use it with `kmint models import`"
    return SourceError(
        f"{folder / wanted} is missing", fix or "download all shards of the checkpoint again"
    )


def require_folder(path: Path, what: str) -> None:
    """Raise SourceError for a file given for its folder, and for a missing path."""
    if path.is_file():
        raise SourceError(f"{what} is given as the file {path}", f"give its folder: {path.parent}")
    if not path.is_dir():
        raise SourceError(f"{path} is not a folder", f"give the folder of {what}")


def refuse_pointer(path: Path) -> None:
    """Raise SourceError for a pointer of Git LFS in place of the file."""
    try:
        with path.open("rb") as file:
            pointer = file.read(len(_LFS)) == _LFS
    except OSError as error:
        raise SourceError(
            f"{path}: {error.strerror}", "check the path and its permissions"
        ) from None
    if pointer:
        raise SourceError(
            f"{path} is a pointer of Git LFS, not the file itself",
            f"run `git lfs pull` in {path.parent}, or download the file from the hub",
        )


def refuse_quantised(config: Mapping[str, Any]) -> None:
    """Raise ArchitectureError for a checkpoint whose weights are stored quantised."""
    settings = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(settings, dict):
        return
    method = str(settings.get("quant_method") or settings.get("method") or "an unnamed method")
    method_name = _QUANTISED.get(method.lower(), method[:40])
    if settings.get("load_in_4bit") or settings.get("load_in_8bit"):
        method_name = "bitsandbytes"
    raise ArchitectureError(
        f"the base's weights are quantised with {method_name} (quantization_config in config.json)",
        "give the original checkpoint in BF16 or F16, from which this one was made",
    )


def refuse_quantised_tensors(names: Iterable[str]) -> None:
    """Raise ArchitectureError for tensors that only quantised weights have.

    Not every tool marks such weights in config.json.
    """
    found = sorted(name for name in names if name.endswith(_PACKED))
    if found:
        raise ArchitectureError(
            f"{len(found)} tensors are those of quantised weights, the first is {found[0]!r}",
            "give the original checkpoint in BF16 or F16, from which this one was made",
        )


def _instead_of_adapter(folder: Path) -> str:
    inner = sorted(path.parent.name for path in folder.glob("*/adapter_config.json"))
    if inner:
        return (
            f"the adapter is in a subfolder: choose one with --subfolder {' or '.join(inner[:4])}"
        )
    if (folder / "config.json").is_file():
        return "this is a whole checkpoint: convert it with --base, without --adapter"
    if any(folder.glob("*.gguf")):
        return "the folder holds a GGUF already: use it with `kmint models import`"
    return "give the folder that PEFT's save_pretrained wrote"


def _pickled(folder: Path) -> str | None:
    found = next(
        (
            path.name
            for path in sorted(folder.glob("*"))
            if path.suffix in _PICKLED and "model" in path.name
        ),
        None,
    )
    if found is None:
        return None
    return (
        f"{found} is a pickle, which can run code; load it with transformers and save it again, "
        "as safetensors"
    )
