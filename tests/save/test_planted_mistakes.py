"""The test that is saved with a kernel passes for it, and fails for every planted mistake.

Each has a name of its own, so that one process runs many. Triton's interpreter runs them, and a GPU
where there is one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.sampling import sample
from tests.save.conftest import BY_KIND, OPAQUE, op_name, save_quickly
from tests.save.mistakes import MISTAKES, planted

# A mistake is seen at its first wrong case; the others would only take time.
FIRST_FAILURE_ONLY = """
import pytest

failed = set()

def pytest_runtest_setup(item):
    if item.path in failed:
        pytest.skip("this kernel is known to be wrong")

def pytest_runtest_logreport(report):
    if report.failed:
        item = next(item for item in items if item.nodeid == report.nodeid)
        failed.add(item.path)
        if "illegal memory access" in report.longreprtext:
            item.session.shouldstop = "the GPU answers no more"

items = []

def pytest_collection_modifyitems(session, config, items: list):
    globals()["items"].extend(items)
"""
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", "."]
NO_WEIGHT = {"unary", "row_reduce", "gate_up", "target", "rope", "rope_interleaved", "pair_reduce"}
NO_SUM = {"gate_up", "bias", "dequant", "rope", "rope_interleaved"}
PROBABILITIES = {"unary", "row_reduce", "scale", "target", "pair_reduce"}
NORMS = {"rms", "ln", "add_rms", "add_ln", "norm_rope", "add_norm_rope"}
APPLIES = {
    "factor": set(BY_KIND),
    "missing max": PROBABILITIES,
    "wrong eps": NORMS,
    "dropped mask": set(BY_KIND) - NO_SUM,
    "fp16 sum": set(BY_KIND) - NO_SUM,
    "swapped gate": {"gate_up"},
    "off-by-one column": set(BY_KIND),
    "stale weight": set(BY_KIND) - NO_WEIGHT,
    "wrong output dtype": set(BY_KIND),
    "transposed": set(BY_KIND) - {"row_reduce", "target", "pair_reduce"},
}
PAIRS = tuple((kind, name) for kind in BY_KIND for name, kinds in APPLIES.items() if kind in kinds)
RUN = {*sample(PAIRS, step=3), *{name: (kind, name) for kind, name in PAIRS}.values()}
"""Kinds and mistakes whose tests run: a sample with every kind and every mistake."""


@pytest.fixture(scope="module", params=["interpreter", pytest.param("gpu", marks=pytest.mark.gpu)])
def failures(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], str]:
    """By signature kind and mistake ("" for none): the first failure of the saved file's test, or "".

    On a GPU the kernels are judged there, and all that is saved with a right one runs. Without one
    they are saved with made-up verdicts: `project` judges them.
    """
    on_gpu = request.param == "gpu"
    if on_gpu:
        saved = request.getfixturevalue("project").saved
    else:
        quick = tmp_path_factory.mktemp("quick")
        names = (*BY_KIND.values(), *OPAQUE)
        saved = {name: save_quickly(name, quick) for name in names}
    folder = tmp_path_factory.mktemp("planted")
    modules: dict[str, tuple[str, str]] = {}
    for kind, name in (*BY_KIND.items(), *((name, name) for name in OPAQUE)):
        kernel, test, _ = saved[name].files
        text = kernel.read_text(encoding="utf-8")
        mistakes = planted(text) if kind in BY_KIND else {}
        for mistake, edited in {"": text, **mistakes}.items():
            if mistake and (kind, mistake) not in RUN:
                continue
            module = f"{op_name(name)}_{len(modules)}"
            modules[module] = (kind, mistake)
            # Each registers an operator, whose names must differ in one process.
            named = re.sub(r"kmint_[0-9a-f]{8}(::|\.)", rf"planted{len(modules)}\1", edited)
            (folder / f"{module}.py").write_text(named, encoding="utf-8")
            imports = test.read_text(encoding="utf-8").replace(
                f"from {op_name(name)} import", f"from {module} import"
            )
            (folder / f"test_{module}.py").write_text(imports, encoding="utf-8")
    (folder / "conftest.py").write_text(FIRST_FAILURE_ONLY, encoding="utf-8")
    right = [module for module, (_, mistake) in modules.items() if not mistake]
    wrong = [module for module in modules if module not in right]
    if on_gpu:
        found = outcomes(folder, right, [], 8) | outcomes(folder, wrong, ["-k", "test_kernel"], 8)
    else:
        found = outcomes(folder, list(modules), ["-k", "test_kernel"], 1, TRITON_INTERPRET="1")
    return {modules[module]: why for module, why in found.items()}


def outcomes(
    folder: Path, modules: list[str], chosen: list[str], processes: int, **environment: str
) -> dict[str, str]:
    """The first failure of each module, or "" where all tests that ran passed.

    A GPU answers no more after an illegal access: that ends the process, and another one goes on.
    """
    first: dict[str, str] = {}
    pending = modules
    while pending:
        shares = [share for at in range(processes) if (share := pending[at::processes])]
        started = [
            subprocess.Popen(
                [*PYTEST, *chosen, f"--junitxml={at}.xml", *(f"test_{one}.py" for one in share)],
                cwd=folder,
                env={**os.environ, **environment},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
            )
            for at, share in enumerate(shares)
        ]
        ran: Counter[str] = Counter()
        for at, process in enumerate(started):
            process.wait()
            for case in ElementTree.parse(folder / f"{at}.xml").iter("testcase"):
                module = case.attrib["classname"].removeprefix("test_")
                ran[module] += case.find("skipped") is None
                failure = case.find("failure")
                if failure is not None and not first.get(module):
                    first[module] = f"{case.attrib['name']}: {failure.attrib['message']}"
        assert +ran, f"tests that ran nothing: {pending}"
        first |= {module: first.get(module, "") for module in +ran}
        pending = [module for module in pending if not ran[module]]
    return first


def test_a_broken_gpu_context_costs_no_other_kernel_its_test(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(FIRST_FAILURE_ONLY, encoding="utf-8")
    broken = "def test_it():\n    raise RuntimeError('an illegal memory access was encountered')\n"
    (tmp_path / "test_a.py").write_text(broken, encoding="utf-8")
    (tmp_path / "test_b.py").write_text("def test_it():\n    pass\n", encoding="utf-8")
    found = outcomes(tmp_path, ["a", "b"], [], 1)
    assert found["b"] == "" and "illegal memory access" in found["a"]


def test_every_mistake_is_planted_wherever_it_applies(
    failures: dict[tuple[str, str], str], tmp_path: Path
) -> None:
    assert set(APPLIES) == set(MISTAKES)
    kept = {kind: save_quickly(name, tmp_path).files[0] for kind, name in BY_KIND.items()}
    there = {kind: planted(file.read_text(encoding="utf-8")) for kind, file in kept.items()}
    assert {(kind, mistake) for kind in there for mistake in there[kind]} == set(PAIRS)
    assert {which for which in failures if which[1]} == RUN
    assert ({kind for kind, _ in RUN}, {name for _, name in RUN}) == (set(BY_KIND), set(MISTAKES))


@pytest.mark.parametrize("kind", [*BY_KIND, *OPAQUE])
def test_the_saved_test_tells_right_from_wrong(
    failures: dict[tuple[str, str], str], kind: str
) -> None:
    found = {mistake: why for (of, mistake), why in failures.items() if of == kind}
    assert {mistake for mistake, why in found.items() if not why} == {""}, found[""]


def test_a_plain_run_without_a_gpu_sees_a_wrong_kernel_too(tmp_path: Path) -> None:
    kernel = save_quickly("row_rmsnorm", tmp_path).files[0]
    kernel.write_text(planted(kernel.read_text(encoding="utf-8"))["factor"], encoding="utf-8")
    environment = {name: os.environ[name] for name in os.environ if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [*PYTEST, "-k", "test_kernel"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED test_rmsnorm.py::test_kernel_interpreted" in done.stdout
