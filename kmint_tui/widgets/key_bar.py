"""The line of keys at the bottom, each with its own words; a click does what the key does."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Footer
from textual.widgets._footer import FooterKey


class KeyBar(Footer):
    """Textual's footer, without folding the keys of a group into one label: here the groups are for the help."""

    def compose(self) -> ComposeResult:
        shown: set[str] = set()
        for active in self.screen.active_bindings.values():
            binding = active.binding
            if not binding.show or binding.group is None or binding.action in shown:
                continue
            shown.add(binding.action)
            yield FooterKey(
                binding.key,
                self.app.get_key_display(binding),
                binding.description,
                binding.action,
                disabled=not active.enabled,
                tooltip=binding.tooltip,
            ).data_bind(compact=Footer.compact)
        self.styles.grid_size_columns = max(1, len(shown))
