"""The line above the keys: model and offload, GPU and free memory, who holds the GPU, whether the network may be used."""

from __future__ import annotations

from textual.markup import escape
from textual.widgets import Static

from kmint_tui.workbench.facts import Facts


class FactsBar(Static):
    """Empty until the facts are known."""

    def show(self, facts: Facts | None, holder: str) -> None:
        """Show these facts; `holder` names what of kmint is at work now, empty for nothing."""
        if facts is None:
            self.update("looking at this machine …")
            return
        network = f"[$warning]OFFLINE[/] ({facts.offline})" if facts.offline else "ONLINE"
        bar = "  [$text-muted]│[/] "
        device = [escape(facts.gpu), holder or "idle"]
        if facts.others:
            device = [*([holder] if holder else []), f"[$warning]GPU busy[/]: {escape(facts.others)}", escape(facts.gpu)]
        # A narrow terminal cuts off the end.
        self.update(bar.join((network, f"{escape(facts.model)}, {facts.offload}", ", ".join(device))))
