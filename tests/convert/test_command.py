"""`kmint convert` as a process: folders, hub ids from a local server, refusals and exit codes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest

from tests.cli.runner import Done, kmint
from tests.convert import reference_models
from tests.models.hub_server import COMMIT, Hub

REPO = "someone/tiny"


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    reference_models.write(reference_models.CASES["llama-adapter"], tmp_path)
    return tmp_path


@pytest.fixture
def hub(folders: Path) -> Iterator[Hub]:
    """A base at the root and an adapter in a folder of one repository, with unneeded files."""
    files = {path.name: path.read_bytes() for path in (folders / "base").iterdir()}
    files |= {f"lora/{path.name}": path.read_bytes() for path in (folders / "adapter").iterdir()}
    config = json.loads(files["lora/adapter_config.json"])
    files["lora/adapter_config.json"] = json.dumps(
        {**config, "base_model_name_or_path": REPO}
    ).encode()
    with Hub(
        REPO, {**files, "pytorch_model.bin": b"not needed", "lora/optimizer.pt": b"not needed"}
    ) as server:
        yield server


def convert(folder: Path, *arguments: str, hub: Hub | None = None) -> Done:
    endpoint = hub.endpoint if hub else "http://127.0.0.1:9"
    return kmint(
        "convert",
        *arguments,
        KMINT_HOME=str(folder / "home"),
        HF_ENDPOINT=endpoint,
        HF_HUB_OFFLINE="0",
    )


def test_out_never_replaces_what_is_no_gguf(folders: Path) -> None:
    """A wrong --out, such as the checkpoint itself, must not delete anything."""
    weights = folders / "base" / "model.safetensors"
    before = weights.read_bytes()
    for out, words in (
        (weights, "not overwritten"),
        (folders, "is a folder"),
        ("", "is a folder"),
        ("/dev/null", "not overwritten"),
    ):
        done = convert(folders, "--base", str(folders / "base"), "--out", str(out))
        assert (done.code, done.out) == (2, ""), done.err
        assert words in done.err
    assert weights.read_bytes() == before
    assert not [
        path for path in folders.rglob("*") if path.name.endswith((".unproven", ".partial"))
    ]


def test_an_adapter_alone_is_not_said_to_be_a_smith(folders: Path) -> None:
    done = convert(
        folders,
        "--base",
        str(folders / "base"),
        "--adapter",
        str(folders / "adapter"),
        "--adapter-only",
        "--out",
        str(folders / "a.gguf"),
    )
    assert (done.code, "--lora" in done.err, "kmint mint" in done.err) == (0, True, False)


def architecture(path: Path) -> tuple[str, str]:
    fields = gguf.GGUFReader(path).fields
    return fields["general.type"].contents(), fields["general.architecture"].contents()


def test_base_and_adapter_from_the_hub_equal_the_folders(folders: Path, hub: Hub) -> None:
    local, fetched = folders / "local.gguf", folders / "fetched.gguf"
    assert (
        convert(
            folders,
            "--base",
            str(folders / "base"),
            "--adapter",
            str(folders / "adapter"),
            "--out",
            str(local),
        ).code
        == 0
    )
    done = convert(
        folders,
        "--base",
        REPO,
        "--adapter",
        REPO,
        "--subfolder",
        "lora",
        "--out",
        str(fetched),
        "--json",
        hub=hub,
    )
    assert done.code == 0, done.err
    (report,) = done.document["files"]
    assert {finding["level"]: finding["status"] for finding in report["findings"]} == {
        "structure": "pass",
        "tokenizer": "pass",
    }
    ours, theirs = (
        {tensor.name: tensor.data.tobytes() for tensor in gguf.GGUFReader(path).tensors}
        for path in (local, fetched)
    )
    assert ours == theirs
    asked = {name for name, _ in hub.requests}
    assert "lora/adapter_model.safetensors" in asked and not any(
        "not needed" in str(hub.files[name]) for name in asked
    )
    assert (
        folders / "home/data/models/hub/someone--tiny" / COMMIT / "lora/adapter_config.json"
    ).is_file()
    served = hub.served
    assert convert(folders, "--base", REPO, "--out", str(folders / "again.gguf"), hub=hub).code == 0
    assert hub.served == served
    removed = kmint("models", "rm", REPO, "--yes", KMINT_HOME=str(folders / "home"))
    assert removed.code == 0 and not (folders / "home/data/models/hub/someone--tiny").exists(), (
        removed.err
    )


def test_an_adapter_alone_needs_its_base_only_for_the_config(folders: Path, hub: Hub) -> None:
    """The adapter names its base by hub id; only config.json of it is fetched."""
    done = convert(
        folders, "--adapter", REPO, "--subfolder", "lora", "--out", str(folders / "a.gguf"), hub=hub
    )
    assert done.code == 0, done.err
    assert architecture(folders / "a.gguf") == ("adapter", "llama")
    assert {name for name, _ in hub.requests} == {
        "lora/adapter_config.json",
        "lora/adapter_model.safetensors",
        "config.json",
    }


def test_an_adapter_alone_from_folders(folders: Path) -> None:
    arguments = (
        "--base",
        str(folders / "base"),
        "--adapter",
        str(folders / "adapter"),
        "--out",
        str(folders / "a.gguf"),
    )
    assert convert(folders, *arguments, "--adapter-only", "--quant", "F32", "--plan").code == 0
    assert not (folders / "a.gguf").exists()
    assert convert(folders, *arguments, "--adapter-only").code == 0
    assert architecture(folders / "a.gguf") == ("adapter", "llama")
    assert (
        convert(
            folders, *arguments[:4], "--adapter-only", "--verify-only", str(folders / "a.gguf")
        ).code
        == 0
    )


@pytest.mark.parametrize("variable", ["KMINT_OFFLINE", "HF_HUB_OFFLINE", None])
def test_hub_ids_are_refused_offline(
    variable: str | None, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = () if variable else ("--offline",)
    if variable:
        monkeypatch.setenv(variable, "1")
    done = kmint(
        *option,
        "convert",
        "--base",
        REPO,
        "--out",
        str(folders / "m.gguf"),
        KMINT_HOME=str(folders / "home"),
    )
    assert done.code == 4
    assert "keeps kmint offline" in done.err and "someone/tiny" in done.err
    assert not (folders / "m.gguf").exists()


def test_what_the_hub_does_not_have_is_named(folders: Path, hub: Hub) -> None:
    out = ("--out", str(folders / "m.gguf"))
    done = convert(folders, "--base", "nobody/nothing", *out, hub=hub)
    assert done.code == 4 and "404" in done.err
    done = convert(folders, "--adapter", REPO, "--subfolder", "elsewhere", *out, hub=hub)
    assert done.code == 4 and "no folder 'elsewhere'" in done.err
    del hub.files["model.safetensors"]
    done = convert(folders, "--base", REPO, *out, hub=hub)
    assert done.code == 4 and "has no model.safetensors" in done.err


def test_a_plan_fetches_no_weights(folders: Path, hub: Hub) -> None:
    done = convert(folders, "--base", REPO, "--out", str(folders / "m.gguf"), "--plan", hub=hub)
    assert done.code == 2 and "the weights of someone/tiny are not here" in done.err
    assert hub.requests == []


def test_an_importance_matrix_from_the_smiths_own_prompts(folders: Path) -> None:
    out = folders / "m.gguf"
    done = convert(
        folders,
        "--base",
        str(folders / "base"),
        "--quant",
        "Q4_K_M",
        "--imatrix",
        "--out",
        str(out),
        "--json",
    )
    assert done.code == 0, done.err
    assert "measured on 24 prompts" in done.err
    assert "importance matrix over 14 tensors" in done.document["files"][0]["notes"][1]
    done = convert(
        folders, "--base", str(folders / "base"), "--quant", "F16", "--imatrix", "--out", str(out)
    )
    assert done.code == 2 and "changes nothing for F16" in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--out", "m.gguf"), "nothing to convert"),
        (("--adapter", "x", "--out", "m.gguf", "--imatrix"), "--imatrix needs a whole model"),
        (("--base", "x"), "where should the file go"),
        (
            ("--base", "x", "--out", "m.gguf", "--adapter-only"),
            "--adapter-only is about an adapter",
        ),
        (("--base", "x", "--out", "m.gguf", "--subfolder", "y"), "--subfolder is about an adapter"),
    ],
)
def test_requests_that_make_no_sense(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    done = convert(tmp_path, *arguments)
    assert done.code == 2 and said in done.err


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    done = convert(tmp_path, "--base", "no/such/folder", "--out", "m.gguf")
    assert done.code == 4 and "is not a folder" in done.err
