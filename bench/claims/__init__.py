"""The claims of kmint about itself: one entry a claim, with its script, its figures and its
table.

A script of `bench/` writes a raw document. `bench/keep.py` reduces it to a few figures and keeps
these in `bench/results/`. `python -m docs.generate` makes the tables of README and docs from
them. Only the newest run of a machine is kept.
"""

from bench.claims.book import BOOK
from bench.claims.claim import Claim, Figures, Rows
from bench.claims.converting import CONVERTING
from bench.claims.judging import JUDGING
from bench.claims.minting import MINTING
from bench.claims.result import RESULTS, Result, load, results_of, write
from bench.claims.safety import SAFETY
from bench.claims.scaling import SCALING
from bench.claims.smith import SMITH
from bench.claims.timing import TIMING
from bench.claims.using import USING

CLAIMS: dict[str, Claim] = {
    claim.name: claim
    for claim in (
        *(*MINTING, *BOOK, *JUDGING, *TIMING, *SMITH, *CONVERTING, *USING, *SAFETY, *SCALING),
    )
}
"""Every claim by its name, in the order of the documentation."""

__all__ = ["CLAIMS", "RESULTS", "Claim", "Figures", "Result", "Rows", "load", "results_of", "write"]
