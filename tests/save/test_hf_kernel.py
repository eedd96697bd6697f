"""The package for Hugging Face `kernels`: loaded offline by the real library where it is installed,
and its own test passes.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kmint_tui.errors import UsageError
from kmint_tui.save.saving import save
from kmint_tui.save.verifying import saved_kernels, verify
from referee.judge import Referee
from referee.ops import get
from tests.save.conftest import draft, session, source

# A folder with the library and what it needs, for a machine where it may not be installed beside
# kmint's own dependencies.
LIBRARY = os.environ.get("KMINT_TEST_KERNELS", "")

LOAD = """
import socket, sys, torch
from pathlib import Path

def refuse(*arguments, **keywords):
    raise AssertionError("the network was used")

socket.socket.connect = refuse
from kernels import get_local_kernel
from kernels._rust import Build, Digest, DigestAlgorithm, Metadata

folder = Path(sys.argv[1])
kernel = get_local_kernel(folder)
x, w = torch.randn(5, 257), torch.randn(257)
assert torch.equal(kernel.rmsnorm(x, w), kernel.reference(x, w))

from kernels import LocalLayerRepository, Mode, kernelize, register_kernel_mapping
from kernels import use_kernel_forward_from_hub

@use_kernel_forward_from_hub("RMSNorm")
class RMSNorm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(257))

    def forward(self, hidden_states):
        raise AssertionError("the layer was not replaced")

repository = LocalLayerRepository(folder, layer_name="Rmsnorm")
register_kernel_mapping({"RMSNorm": {"cpu": repository}}, inherit_mapping=False)
for mode in (Mode.INFERENCE, Mode.TRAINING | Mode.TORCH_COMPILE):
    model = kernelize(torch.nn.Sequential(RMSNorm()), mode=mode, device="cpu")
    assert torch.equal(model(x), kernel.reference(x, model[0].weight))
assert [str(one) for one in Build.open(folder).general.backends]
for variant in (folder / "build").iterdir():
    metadata = Metadata.read_from_file(variant / "metadata.json")
    metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))
print("loaded", metadata.name)
"""


@pytest.fixture(scope="module")
def package(referee: Referee, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hf") / "kmint-rmsnorm"
    write(referee, folder)
    return folder


def write(referee: Referee, folder: Path, *, force: bool = False) -> None:
    text = source("row_rmsnorm")
    verdict = referee.judge(text, "rmsnorm", level="correct")
    judge = lambda candidate: referee.judge(candidate, "rmsnorm", level="correct")  # noqa: E731
    save(
        session("rmsnorm"),
        draft(text, verdict),
        get("rmsnorm"),
        folder,
        judge=judge,
        form="hf-kernel",
        force=force,
    )


def test_the_real_library_loads_it_offline(package: Path) -> None:
    if not LIBRARY and importlib.util.find_spec("kernels") is None:
        pytest.skip(
            "Hugging Face `kernels` is not installed (set KMINT_TEST_KERNELS to a folder with it)"
        )
    environment = {
        **os.environ,
        "PYTHONPATH": LIBRARY,
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(package)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("loaded")


def test_its_own_test_passes(package: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(package),
        str(package / "tests"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_every_copy_of_the_kernel_holds(package: Path) -> None:
    files = saved_kernels(package)
    assert len(files) == 3
    assert all(verify(file, None).holds for file in files)


def test_an_edited_file_anywhere_in_it_is_kept(
    referee: Referee, package: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "again"
    write(referee, folder)
    write(referee, folder)
    (folder / "build.toml").write_text("mine\n", encoding="utf-8")
    with pytest.raises(UsageError, match="build.toml"):
        write(referee, folder)
    assert (folder / "build.toml").read_text(encoding="utf-8") == "mine\n"
    write(referee, folder, force=True)
    assert (folder / "build.toml").read_text(encoding="utf-8") != "mine\n"
