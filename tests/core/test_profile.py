"""`kmint profile`: occupancy by NVIDIA's rules, the computed part of a compiled kernel, and what
Nsight Compute prints; measuring itself on a GPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kmint_tui.errors import EnvironmentUnfit
from kmint_tui.profiling.measured import ACTIVE, BYTES, TIME, KernelRun, read_ncu
from kmint_tui.profiling.occupancy import occupancy
from referee.target import Target
from tests.cli.runner import kmint
from tests.save.conftest import source

pytestmark = pytest.mark.usefixtures("warm")

TABLE = f"""==PROF== Connected to process 41
==PROF== Profiling "_kernel": 0%....100% - 1 pass
"ID","Process ID","Kernel Name","Block Size","{BYTES}","{TIME}","{ACTIVE}"
"","","","","byte","ns","%"
"0","41","_kernel","(128, 1, 1)","134,217,728","41,500","87.50"
"1","41","_rest","(128, 1, 1)","n/a","2,000","12.50"
"""


@pytest.mark.parametrize(
    ("arch", "warps", "registers", "shared", "active", "limit"),
    [
        (90, 4, 32, 0, 64, "warps"),
        (80, 8, 64, 0, 32, "registers"),
        (80, 4, 255, 0, 8, "registers"),
        (89, 4, 51, 32, 36, "registers"),
        (75, 1, 32, 0, 16, "programs"),
        (86, 4, 32, 48 * 1024, 8, "shared memory"),
        (90, 8, 40, 100 * 1024, 16, "shared memory"),
        (90, 32, 255, 0, 0, "registers"),
        (90, 4, None, 0, 64, "warps"),
    ],
)
def test_occupancy_follows_the_programming_guide(
    arch: int, warps: int, registers: int | None, shared: int, active: int, limit: str
) -> None:
    """The figures are those of NVIDIA's occupancy calculator."""
    card = Target(arch=arch).properties
    found = occupancy(registers=registers, shared=shared, num_warps=warps, arch=arch, card=card)
    assert (found.warps, found.limit) == (active, limit)
    assert found.share == active / {75: 32, 80: 64, 86: 48, 89: 48, 90: 64}[arch]


def test_a_table_of_nsight_compute_is_read() -> None:
    assert read_ncu(TABLE) == (
        KernelRun("_kernel", 41.5, 134217728.0, 0.875),
        KernelRun("_rest", 2.0, None, 0.125),
    )
    with pytest.raises(EnvironmentUnfit, match="ERR_NVGPUCTRPERM"):
        read_ncu("==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM: no permission\n")


def test_another_target_is_computed_and_not_measured(tmp_path: Path) -> None:
    """Also where there is a GPU: nothing runs, and the exit code is 0."""
    file = tmp_path / "kernel.py"
    file.write_text(source("online_softmax"), encoding="utf-8")
    done = kmint("profile", str(file), "--op", "softmax", "--target", "sm_89", "--json")
    assert done.code == 0, done.err
    found = done.document["computed"]
    assert done.document["measured"] is None and found["target"] == "sm_89"
    assert found["least_bytes"] == found["moved_bytes"] == 2 * 2 * 8192 * 4096
    (launch,) = found["launches"]
    assert (launch["programs"], launch["num_warps"], launch["spills"]) == (8192, 4, 0)
    assert 0 < launch["registers"] <= 255 and launch["occupancy"]["most"] == 48
    held = launch["occupancy"]["blocks"] * 128
    assert launch["waves"] == pytest.approx(8192 / held)


def test_without_a_gpu_it_says_what_is_missing(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(source("online_softmax"), encoding="utf-8")
    done = kmint("profile", str(file), "--op", "softmax", CUDA_VISIBLE_DEVICES="")
    assert done.code == 3 and "128.00 MiB" in done.out and "_kernel" in done.out
    (error, fix) = done.err.strip().splitlines()
    assert "the rest is measured on a GPU" in error and "--target sm_90" in fix


def test_a_kernel_that_does_not_compile_has_no_profile(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(source("online_softmax").replace("tl.exp", "tl.no_such"), encoding="utf-8")
    done = kmint("profile", str(file), "--op", "softmax", "--target", "sm_90")
    assert done.code == 1 and done.out.startswith("rejected by "), done.out + done.err


@pytest.mark.gpu
def test_a_gpu_measures_the_same_launches(tmp_path: Path) -> None:
    file = tmp_path / "kernel.py"
    file.write_text(source("online_softmax"), encoding="utf-8")
    done = kmint("profile", str(file), "--op", "softmax", "--json")
    assert done.code == 0, done.err
    found = done.document["measured"]
    assert 0.1 < found["floor_share"] < 1.1
    assert [one["name"] for one in found["kernels"]] == ["_kernel"]
