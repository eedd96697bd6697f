"""Pairs of a base and an adapter that the converter refuses, with the words of the reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


def of_mlx(folder: Path) -> None:
    (folder / "adapter" / "adapter_config.json").write_text('{"fine_tune_type": "lora"}')


def edit(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def base_config(**values: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "base" / "config.json", **values)


def adapter_config(**values: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "adapter" / "adapter_config.json", **values)


def tokenizer(**values: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "base" / "tokenizer.json", **values)


def weights(folder: Path, which: str) -> Path:
    return (
        folder / which / ("model.safetensors" if which == "base" else "adapter_model.safetensors")
    )


def renamed(change: Callable[[str], str]) -> Callable[[Path], None]:
    def rename(folder: Path) -> None:
        path = weights(folder, "adapter")
        save_file({change(key): value for key, value in load_file(path).items()}, path)

    return rename


def changed(
    which: str, change: Callable[[dict[str, torch.Tensor]], None]
) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = weights(folder, which)
        stored = load_file(path)
        change(stored)
        save_file(stored, path)

    return apply


def quantised(method: str) -> Callable[[Path], None]:
    return base_config(quantization_config={"quant_method": method, "bits": 4})


def yarn(**values: Any) -> Callable[[Path], None]:
    return base_config(
        rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4, **values}
    )


def replaced(which: str, name: str, by: str, content: str = "") -> Callable[[Path], None]:
    def replace(folder: Path) -> None:
        (folder / which / name).unlink()
        (folder / which / by).write_text(content)

    return replace


def lost_layer(stored: dict[str, torch.Tensor]) -> None:
    for key in [key for key in stored if ".layers.1." in key and "q_proj" in key]:
        del stored[key]


def untrained(stored: dict[str, torch.Tensor]) -> None:
    for key in stored:
        if "lora_B" in key:
            stored[key] = torch.zeros_like(stored[key])


def more_tokens_than_rows(folder: Path) -> None:
    shutil.copy(folder / "base" / "tokenizer.json", folder / "adapter")
    path = folder / "adapter" / "tokenizer.json"
    document = json.loads(path.read_text())
    document["added_tokens"].append(
        {**document["added_tokens"][0], "id": 600, "content": "<|new|>"}
    )
    path.write_text(json.dumps(document))


def tied_embedding_of_another_size(folder: Path) -> None:
    base_config(tie_word_embeddings=True)(folder)
    changed("base", lambda stored: stored.__delitem__("lm_head.weight"))(folder)
    grown = {"base_model.model.model.embed_tokens.weight": torch.ones(520, 64)}
    changed("adapter", lambda stored: stored.update(grown))(folder)


def zero_tail(folder: Path) -> None:
    path = weights(folder, "base")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size - 40_000)
        file.write(bytes(40_000))


def two_adapters(folder: Path) -> None:
    def twice(stored: dict[str, torch.Tensor]) -> None:
        for key in list(stored):
            value = stored.pop(key)
            for name in ("first", "second"):
                stored[key.replace(".weight", f".{name}.weight")] = value.clone()

    changed("adapter", twice)(folder)


BEFORE: dict[str, tuple[Callable[[Path], None], str, str]] = {
    **{
        way: (adapter_config(init_lora_weights=way), f"init_lora_weights is '{way}'", "PEFT first")
        for way in (
            "pissa",
            "pissa_niter_4",
            "olora",
            "corda",
            "loftq",
            "lora_ga",
            "mica",
            "a_new_one",
        )
    },
    "layer-replication": (adapter_config(layer_replication=[[0, 2]]), "layer_replication", "PEFT"),
    "target-parameters": (adapter_config(target_parameters=["x"]), "target_parameters", "PEFT"),
    "qalora": (adapter_config(use_qalora=True), "use_qalora", "PEFT"),
    "another-method": (adapter_config(peft_type="VERA"), "'VERA'", "LoRA"),
    "rank": (adapter_config(r=3), "stores rank 4", ""),
    "mlx-config": (
        of_mlx,
        "MLX",
        "mlx_lm.fuse",
    ),
    "mlx-names": (
        renamed(
            lambda key: key.replace("lora_A.weight", "lora_a").replace("lora_B.weight", "lora_b")
        ),
        "MLX",
        "mlx_lm.fuse",
    ),
    "two-adapters": (two_adapters, "2 adapters: first, second", "selected_adapters"),
    **{
        method: (quantised(method), f"quantised with {said}", "original checkpoint")
        for method, said in (
            ("gptq", "GPTQ"),
            ("awq", "AWQ"),
            ("fp8", "FP8"),
            ("bitsandbytes", "bitsandbytes"),
            ("compressed-tensors", "compressed-tensors"),
        )
    },
    "packed-without-a-word": (
        changed(
            "base",
            lambda stored: stored.update({"model.layers.0.mlp.up_proj.qweight": torch.ones(4, 4)}),
        ),
        "those of quantised weights",
        "original checkpoint",
    ),
    "pickled-base": (
        replaced("base", "model.safetensors", "pytorch_model.bin"),
        "model.safetensors is missing",
        "pytorch_model.bin is a pickle",
    ),
    "pickled-adapter": (
        replaced("adapter", "adapter_model.safetensors", "adapter_model.bin"),
        "is missing",
        "adapter_model.bin is a pickle",
    ),
    "pointer-base": (
        replaced("base", "model.safetensors", "model.safetensors", POINTER),
        "pointer of Git LFS",
        "git lfs pull",
    ),
    "pointer-adapter": (
        replaced("adapter", "adapter_model.safetensors", "adapter_model.safetensors", POINTER),
        "pointer of Git LFS",
        "git lfs",
    ),
    "pointer-tokenizer": (
        replaced("base", "tokenizer.json", "tokenizer.json", POINTER),
        "pointer of Git LFS",
        "git lfs pull",
    ),
    "checkpoint-as-adapter": (
        lambda folder: _swap(folder, "base", "adapter"),
        "no adapter_config.json",
        "whole checkpoint",
    ),
    "adapter-as-base": (
        lambda folder: _swap(folder, "adapter", "base"),
        "config.json is missing",
        "--adapter",
    ),
    "run-of-training": (
        lambda folder: _deeper(folder),
        "no adapter_config.json",
        "--subfolder checkpoint-100",
    ),
    "file-for-adapter": (
        lambda folder: _file(folder, "adapter"),
        "given as the file",
        "give its folder",
    ),
    "file-for-base": (lambda folder: _file(folder, "base"), "given as the file", "give its folder"),
    "nfkc": (
        tokenizer(normalizer={"type": "NFKC"}),
        "normalises text with NFKC",
        "cannot be carried over",
    ),
    "lowercase": (
        tokenizer(
            normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}
        ),
        "Lowercase",
        "",
    ),
    "strip": (
        tokenizer(normalizer={"type": "Strip", "strip_left": True, "strip_right": True}),
        "Strip",
        "",
    ),
    "cut-in-another-way": (
        tokenizer(pre_tokenizer={"type": "Whitespace"}),
        "pre-tokenizer not recognised",
        "--pre",
    ),
    "more-tokens-than-rows": (
        more_tokens_than_rows,
        "token id 600 does not fit",
        "modules_to_save",
    ),
    "truncate": (yarn(truncate=False), "'truncate' is off", ""),
    "unknown-rope-setting": (yarn(spiral=2), "'spiral' is not known for rope type 'yarn'", ""),
    "unknown-rope": (
        base_config(rope_parameters={"rope_type": "longrope", "rope_theta": 1e4}),
        "'longrope' is not supported",
        "supported",
    ),
    "partial-rotation": (base_config(partial_rotary_factor=0.5), "partial_rotary_factor 0.5", ""),
    "lost-layer": (
        changed("adapter", lost_layer),
        "lacks layer 1 of self_attn.q_proj",
        "incomplete",
    ),
    "untrained": (changed("adapter", untrained), "every lora_B", "trained"),
    "zero-tail": (zero_tail, "zero bytes", "download"),
    "tied-and-resized": (
        tied_embedding_of_another_size,
        "resizes the embedding",
        "ensure_weight_tying",
    ),
    "integer-weights": (
        changed(
            "base",
            lambda stored: stored.update(
                {"model.norm.weight": stored["model.norm.weight"].to(torch.int8)}
            ),
        ),
        "(I8)",
        "BF16",
    ),
}


def _swap(folder: Path, source: str, target: str) -> None:
    shutil.rmtree(folder / target)
    shutil.copytree(folder / source, folder / target)


def _deeper(folder: Path) -> None:
    shutil.move(folder / "adapter", folder / "moved")
    (folder / "adapter").mkdir()
    shutil.move(folder / "moved", folder / "adapter" / "checkpoint-100")


def _file(folder: Path, which: str) -> None:
    moved = weights(folder, which).rename(folder / "kept")
    shutil.rmtree(folder / which)
    moved.rename(folder / which)


def not_a_number(name: str, value: float) -> Callable[[dict[str, torch.Tensor]], None]:
    def spoil(stored: dict[str, torch.Tensor]) -> None:
        key = next(key for key in sorted(stored) if name in key)
        stored[key].view(-1)[-1] = value

    return spoil
