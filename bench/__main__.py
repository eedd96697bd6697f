"""One entry for every measurement.

    python -m bench list                  the claims and the commands that measure them

    python -m bench run CLAIM [NAME=VALUE ...]
                                          measure one claim, keep its result, make the tables

    python -m bench table [--check]       make the tables of README and docs from the kept results

A claim is an entry of `bench/claims` with a separate script. `run` keeps the figures of this
machine in `bench/results`. Some claims need a GPU; their scripts say so and end with an error
without one. NAME=VALUE gives a word in capitals of the claim's script its value.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.claims import CLAIMS, Claim, results_of
from bench.keep import ROOT, kept

_RAW = "RAW.json"


def listing() -> str:
    """One line a claim: its name, the machines with a kept result, and its title."""
    width = max(map(len, CLAIMS))
    return "\n".join(
        f"{claim.name:{width}}  {claim.title} "
        f"({', '.join(result.machine for result in results_of(claim.name)) or 'no result'})"
        for claim in CLAIMS.values()
    )


def command(claim: Claim, raw: Path, values: Mapping[str, str]) -> tuple[list[str], bool]:
    """The command that measures a claim, and whether its stdout is the document.

    The document goes to `raw`, and other files next to it. Raises ValueError for a word in capitals
    without a value.
    """
    words = shlex.split(claim.script)
    printed = ">" in words
    if printed:
        words = words[: words.index(">")]
    known = {"python": [sys.executable], "kmint": [sys.executable, "-m", "kmint_tui"]}
    words[:1] = known.get(words[0], words[:1])
    return [_filled(word, raw, values) for word in words], printed


def _filled(word: str, raw: Path, values: Mapping[str, str]) -> str:
    if not word.partition(".")[0].isupper():
        return word
    if word in values:
        return values[word]
    if word == _RAW:
        return str(raw)
    if word.endswith(".json"):
        return str(raw.with_name(word))
    raise ValueError(f"the script needs {word}: give {word}=VALUE")


def run(claim: Claim, values: Mapping[str, str]) -> int:
    """Measure a claim, keep its result and make the tables; returns the first failing exit code."""
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / f"{claim.name}.json"
        words, printed = command(claim, raw, values)
        if printed:
            with raw.open("wb") as out:
                code = subprocess.run(words, cwd=ROOT, stdout=out).returncode
        else:
            code = subprocess.run(words, cwd=ROOT).returncode
        if code:
            return code
        kept(raw, claim=claim.name)
    return table()


def table(*options: str) -> int:
    """Make the generated pages and tables, or check them with `--check`."""
    return subprocess.run([sys.executable, "-m", "docs.generate", *options], cwd=ROOT).returncode


def main(arguments: list[str] | None = None) -> int:
    """List, measure or make tables; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="the claims and their kept results")
    measured = actions.add_parser("run", help="measure one claim and keep its result")
    measured.add_argument("claim", choices=CLAIMS)
    measured.add_argument("values", nargs="*", metavar="NAME=VALUE", default=[])
    tables = actions.add_parser("table", help="make the tables from the kept results")
    tables.add_argument("--check", action="store_true", help="only name tables that are old")
    options = parser.parse_args(arguments)
    if options.action == "list":
        print(listing())
        return 0
    if options.action == "table":
        return table(*(["--check"] if options.check else []))
    values = dict(value.partition("=")[::2] for value in options.values)
    try:
        return run(CLAIMS[options.claim], values)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
