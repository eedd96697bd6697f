"""The kept results: small, with commit and host, and reduced from what the scripts really write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import command, listing
from bench.claims import CLAIMS, RESULTS, load, results_of
from bench.claims.minting import readme_rows
from bench.keep import claim_of, kept, machine_of, name_of
from docs.generate.pages import ROOT
from referee.ops import catalogue

MOST_LINES = 200
FILES = sorted(RESULTS.iterdir())


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_result_is_small_and_says_where_it_is_from(file: Path) -> None:
    result = load(file)
    assert file.stem.startswith(result.claim)
    assert len(file.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
    assert result.host and result.date and result.versions
    assert (result.commit is None) != (result.added is None)


def test_every_claim_has_one_result_a_machine_and_a_table() -> None:
    for claim in CLAIMS.values():
        results = results_of(claim.name)
        assert len({result.machine for result in results}) == len(results) > 0, claim.name
        assert all(text for result in results for text in claim.rows(result.figures).values())


def operation(name: str, best: str, ratio: float, *, unseen: bool = False) -> dict[str, object]:
    """An operation's figures: 8 drafts, of which 6 are correct."""
    return {"op": name, "unseen": unseen, "drafts": 8, "correct": 6, "best": best, "ratio": ratio}


def test_the_readme_table_names_every_loss() -> None:
    ops = [
        operation("a", "win", 4.0),
        operation("b", "loss", 0.5, unseen=True),
        operation("c", "loss", 0.25),
        operation("d", "tie", 2.0),
    ]
    rows = readme_rows({"operations": ops})
    assert list(rows.values()) == [
        f"4 of 4 (the other {len(catalogue()) - 4} of the catalogue were not run)",
        "1 of 1",
        "75.0 % (unseen 75.0 %)",
        "1 win, 1 tie, 0 unsure, 2 loss; geometric mean 1.00x",
        "a 4.00x",
        "c 0.25x, b 0.50x",
    ]


def test_the_table_in_readme_has_six_rows() -> None:
    table = (
        (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- generated: results -->")[2]
    )
    rows = [
        line for line in table.partition("<!-- end -->")[0].splitlines() if line.startswith("| ")
    ]
    assert len(rows) == 7


def test_a_run_of_a_script_is_kept(tmp_path: Path) -> None:
    raw = tmp_path / "raw.json"
    script = [
        sys.executable,
        "bench/fuzz_plan.py",
        "--count",
        "50",
        "--processes",
        "1",
        "--json",
        str(raw),
    ]
    subprocess.run(script, cwd=ROOT, check=True, capture_output=True)
    path = kept(raw, folder=tmp_path, commit="abc1234", host="a host")
    result = load(path)
    assert (result.claim, result.commit, result.host) == ("fuzz_plan", "abc1234", "a host")
    assert path.name == f"{name_of(CLAIMS['fuzz_plan'], result.machine)}.json"
    assert result.figures["mutated plans"] == 50
    assert result.versions["python"]
    assert CLAIMS["fuzz_plan"].rows(result.figures)["Launch plans with random changes"] == "50"


@pytest.mark.parametrize(
    ("raw", "machine"),
    [
        ({"environment": {"device": "NVIDIA H200"}}, "H200"),
        ({"environment": {"gpu": "NVIDIA H100, 580.1", "cores": 16}}, "H100"),
        ({"cores": 2, "environment": {"device": "cpu"}}, "2 CPU cores"),
        ({"machine": {"processors": 4}}, "4 CPU cores"),
        ({}, None),
    ],
)
def test_the_machine_is_read_from_the_document(raw: dict[str, object], machine: str | None) -> None:
    assert machine_of(raw) == machine


def test_an_unknown_document_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no claim"):
        claim_of({"schema": "something/1"})
    raw = tmp_path / "raw.json"
    raw.write_text(
        json.dumps(
            {
                "schema": CLAIMS["history"].schema,
                "drafts": 1,
                "runs": 1,
                "median_ms": 1.0,
                "worst_ms": 1.0,
            }
        )
    )
    with pytest.raises(SystemExit, match="--machine"):
        kept(raw, folder=tmp_path, commit="abc1234")


def test_every_claim_is_listed_with_its_machines() -> None:
    lines = listing().splitlines()
    assert [line.split()[0] for line in lines] == list(CLAIMS)
    assert not any("no result" in line for line in lines)


@pytest.mark.parametrize("name", CLAIMS)
def test_the_script_of_a_claim_writes_the_raw_document(name: str, tmp_path: Path) -> None:
    raw = tmp_path / "raw.json"
    words, printed = command(CLAIMS[name], raw, {"CHECKOUT": "elsewhere"})
    assert printed or str(raw) in words
    scripts = [word for word in words if word.startswith("bench/")]
    assert all((ROOT / script).is_file() for script in scripts)
    assert scripts or {"kmint_tui", "forge.iterate"} & set(words)


def test_a_word_in_capitals_needs_a_value(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="CHECKOUT=VALUE"):
        command(CLAIMS["first_minutes"], tmp_path / "raw.json", {})
