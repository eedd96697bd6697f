"""Checks of this machine and installation. They use no network and write nothing."""

from kmint_tui.doctor.examination import examine
from kmint_tui.doctor.finding import Finding, Status, worst_first

__all__ = ["Finding", "Status", "examine", "worst_first"]
