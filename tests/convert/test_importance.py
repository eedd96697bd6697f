"""The importance matrix: equal to torch's hooks, used by quantisation, refused where useless."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np
import pytest
import torch
from llama_cpp._ggml import libggml
from transformers import PreTrainedModel

from convert.activations import CollectionFailed, Observer, _Tensor
from convert.errors import ConvertError
from convert.importance import measure
from convert.job import ConvertJob
from convert.qwen35 import read_shape, tiled_order
from convert.request import ConvertRequest
from convert.source import read_config
from convert.verify import gguf_ids
from tests.convert import checkpoints

TEXTS = (
    "def run(x, w):\n    M, N = x.shape\n    return kernel[(M,)](x, w)",
    "naïve café 12345",
    "import json",
)
# Hugging Face's modules with the inputs of a llama.cpp weight.
INPUTS = {
    "attn_q": "self_attn.q_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_down": "mlp.down_proj",
    "attn_qkv": "linear_attn.in_proj_qkv",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_out": "linear_attn.out_proj",
}


def mean_squares(model: PreTrainedModel, prompts: list[list[int]]) -> dict[str, Any]:
    """Mean squared input of every linear module over all tokens, by module name."""
    seen: dict[str, list[torch.Tensor]] = {}

    def hook(name: str) -> Any:
        return lambda module, inputs, output: seen.setdefault(name, []).append(
            inputs[0].detach().reshape(-1, inputs[0].shape[-1])
        )

    handles = [
        module.register_forward_hook(hook(name))
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    ]
    with torch.no_grad():
        for ids in prompts:
            model(torch.tensor([ids]))
    for handle in handles:
        handle.remove()
    return {name: (torch.cat(parts) ** 2).mean(dim=0).numpy() for name, parts in seen.items()}


@pytest.mark.parametrize("family", ["llama", "qwen35"])
def test_equals_what_torch_sees(family: str, tmp_path: Path) -> None:
    model = (
        checkpoints.llama(tmp_path / "base")
        if family == "llama"
        else checkpoints.qwen35(tmp_path / "base")
    )
    path = tmp_path / "m.gguf"
    with ConvertJob(
        ConvertRequest(base=tmp_path / "base", out=path, kinds=("F32",), level="structure")
    ) as job:
        job.run()
    measured = measure(path, TEXTS, tmp_path / "i.npz")
    prompts = gguf_ids(path, TEXTS)
    assert measured.tokens == sum(len(ids) for ids in prompts) > 40
    expected = mean_squares(model, prompts)
    with np.load(tmp_path / "i.npz", allow_pickle=False) as stored:
        assert len(stored.files) == measured.tensors == (14 if family == "llama" else 31)
        compared = 0
        for name in stored.files:
            _, layer, weight, _ = name.split(".")
            if weight not in INPUTS:
                continue
            wanted = expected[f"model.layers.{layer}.{INPUTS[weight]}"]
            if weight == "ssm_out":
                shape = read_shape(read_config(tmp_path / "base")[1])
                wanted = wanted[tiled_order(shape, shape.value_dim)]
            np.testing.assert_allclose(stored[name], wanted, rtol=2e-3, atol=1e-6, err_msg=name)
            compared += 1
    assert compared == (8 if family == "llama" else 19)


def test_quantising_with_it_keeps_the_measured_texts_better(tmp_path: Path) -> None:
    """A model whose inputs differ much in size by column.

    The weighted Q4_K_M is nearer to the source on the texts.
    """
    model = checkpoints.llama(tmp_path / "base")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("layernorm.weight"):
                parameter.copy_(torch.exp(torch.randn_like(parameter)))
    model.save_pretrained(tmp_path / "base")
    divergence, sizes = [], []
    for calibration in ((), TEXTS):
        out = tmp_path / f"{len(calibration)}.gguf"
        with ConvertJob(
            ConvertRequest(base=tmp_path / "base", out=out, kinds=("Q4_K_M",), level="full")
        ) as job:
            (report,) = job.run(calibration=calibration)
        divergence.append(report.findings[-1].figures["mean_kl"])
        sizes.append(report.bytes)
        assert any("importance matrix over 14 tensors" in note for note in report.notes) == bool(
            calibration
        )
    assert divergence[1] < divergence[0] and sizes[0] == sizes[1]
    first, second = (
        {
            tensor.name: tensor.data.tobytes()
            for tensor in gguf.GGUFReader(tmp_path / f"{n}.gguf").tensors
        }
        for n in (0, 3)
    )
    differing = {name for name in first if first[name] != second[name]}
    assert differing and all(name.startswith("blk.") for name in differing)
    assert not [path for path in tmp_path.iterdir() if path.suffix in (".npz", ".intermediate")]


def test_it_is_refused_where_it_changes_nothing(tmp_path: Path) -> None:
    checkpoints.llama(tmp_path / "base")
    with (
        ConvertJob(
            ConvertRequest(base=tmp_path / "base", out=tmp_path / "m.gguf", kinds=("F16", "Q8_0"))
        ) as job,
        pytest.raises(ConvertError, match="changes nothing"),
    ):
        job.run(calibration=TEXTS)


def test_another_layout_of_tensors_is_refused() -> None:
    """The self-check against ggml's own functions: a wrong size of the structure ends the
    collection.
    """

    class Larger:
        """A ggml whose tensors have one more field."""

        def __init__(self) -> None:
            self.ggml_op_name, self.ggml_get_name = libggml.ggml_op_name, libggml.ggml_get_name
            self.ggml_nelements = libggml.ggml_nelements
            self.ggml_tensor_overhead = ctypes.CFUNCTYPE(ctypes.c_size_t)(
                lambda: libggml.ggml_tensor_overhead() + 8
            )

    observer = Observer(Larger(), llama_cpp.ggml_backend_sched_eval_callback)
    tensor = _Tensor()
    assert observer.callback(ctypes.addressof(tensor), True, None) is False
    assert observer.callback(ctypes.addressof(tensor), False, None) is True
    with pytest.raises(CollectionFailed, match="lays its tensors out differently"):
        observer.means()
