"""What works on this machine and what does not, found without the network and without writing anything."""

from kmint_tui.doctor.examination import examine
from kmint_tui.doctor.finding import Finding, Status, worst_first

__all__ = ["Finding", "Status", "examine", "worst_first"]
