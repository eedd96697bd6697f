"""Keeps the newest result of a claim: it reduces a script's raw document to figures and makes every
table again.

    python -m bench.keep RAW.json [--claim NAME] [--name NAME] [--machine TEXT] [--host TEXT]
                         [--commit HASH] [--note TEXT]

The figures go to `NAME.json` in `bench/results`; by default NAME is the claim and the machine, such
as `mint_catalogue_h200`. They replace an earlier result of that name. The commit is that of the
document, or `--commit`, or the checked-out one. The script then generates README and
docs/measurements.md anew.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.claims import CLAIMS, RESULTS, Claim, Result, write

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("python", "torch", "triton", "llama-cpp-python", "peft", "transformers")


def claim_of(raw: Mapping[str, Any], name: str | None = None) -> Claim:
    """The claim that a raw document belongs to, by its schema or by name. Raises SystemExit."""
    if name is not None and name in CLAIMS:
        return CLAIMS[name]
    found = [
        claim for claim in CLAIMS.values() if name is None and claim.schema == raw.get("schema")
    ]
    if len(found) != 1:
        raise SystemExit(
            f"no claim for {name or raw.get('schema')!r}; --claim takes one of {', '.join(CLAIMS)}"
        )
    return found[0]


def versions_of(raw: Mapping[str, Any]) -> dict[str, str]:
    """The versions that decide about a result, as far as the document has them."""
    places = [raw, raw.get("machine"), raw.get("environment"), raw.get("versions")]
    places += [place.get("versions") for place in places if isinstance(place, Mapping)]
    known = {
        key: str(value)
        for place in places
        if isinstance(place, Mapping)
        for key, value in place.items()
        if key in VERSIONS
    }
    return {name: known[name].partition("+")[0] for name in VERSIONS if name in known}


def machine_of(raw: Mapping[str, Any]) -> str | None:
    """H200 or another GPU by its name, or "2 CPU cores"; None where the document does not tell."""
    for place in (raw, raw.get("environment"), raw.get("referee"), raw.get("machine")):
        if not isinstance(place, Mapping):
            continue
        device = place.get("device") or place.get("gpu")
        if isinstance(device, str) and device and device != "cpu":
            return device.partition(",")[0].removeprefix("NVIDIA ")
    cores = next(
        (
            place[key]
            for place in _places(raw)
            for key in ("cores", "processors")
            if isinstance(place.get(key), int)
        ),
        None,
    )
    return f"{cores} CPU cores" if cores else None


def _places(raw: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        place
        for place in (raw, raw.get("machine"), raw.get("environment"), raw.get("processor"))
        if isinstance(place, Mapping)
    ]


def host_of(raw: Mapping[str, Any]) -> str:
    """The processor and the system, as far as the document has them."""
    found = {
        key: str(place[key])
        for place in _places(raw)
        for key in ("processor", "model", "platform", "system")
        if key in place
    }
    return ", ".join(
        dict.fromkeys(value for key, value in found.items() if not value.startswith("{"))
    )


def checked_out() -> str:
    """The commit of this checkout. Raises SystemExit where there is none."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit("this is no git checkout: give --commit")
    return done.stdout.strip()


def name_of(claim: Claim, machine: str) -> str:
    """`mint_catalogue_h200`, or `mint_catalogue_cpu`."""
    short = (
        "cpu"
        if "CPU" in machine
        else "_".join(machine.lower().replace(",", " ").replace(".", "").split())
    )
    return f"{claim.name}_{short}"


def kept(
    file: Path,
    *,
    folder: Path = RESULTS,
    claim: str | None = None,
    name: str | None = None,
    machine: str | None = None,
    host: str | None = None,
    commit: str | None = None,
    note: str | None = None,
) -> Path:
    """Reduce a raw document and keep it in `folder`; the new file. Raises SystemExit for one that
    is no result.
    """
    raw = json.loads(file.read_text(encoding="utf-8"))
    about = claim_of(raw, claim)
    where = machine or machine_of(raw)
    if where is None:
        raise SystemExit("the document does not name the machine: give --machine")
    result = Result(
        claim=about.name,
        machine=where,
        host=host or raw.get("host") or host_of(raw) or where,
        date=raw.get("date") or time.strftime("%Y-%m-%d", time.gmtime(file.stat().st_mtime)),
        commit=commit or raw.get("commit") or checked_out(),
        versions=versions_of(raw),
        note=note or raw.get("note") or "",
        figures=about.reduce(raw),
    )
    path = folder / f"{name or name_of(about, where)}.json"
    write(result, path)
    print(f"kept {path.name}: {result.origin}")
    return path


def main() -> None:
    """Reduce one document, keep the result, and make the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("raw", type=Path)
    for option in ("claim", "name", "machine", "host", "commit", "note"):
        parser.add_argument(f"--{option}")
    options = vars(parser.parse_args())
    kept(options.pop("raw"), **options)
    sys.exit(subprocess.run([sys.executable, "-m", "docs.generate"], cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
