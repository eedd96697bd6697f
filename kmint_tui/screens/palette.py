"""The command palette: namespaced entries computed from the present state, so that nothing offered
is inapplicable.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from textual.binding import Binding
from textual.command import DiscoveryHit, Hit, Hits, Provider

from kmint_tui.screens.base import KmintScreen
from kmint_tui.screens.preferences import THEMES
from kmint_tui.widgets.screen_bars import MODE_TITLES


class Commands(Provider):
    """Screens, themes, density, and every action that the present screen allows now."""

    async def discover(self) -> Hits:
        for name, help_text, call in self._commands():
            yield DiscoveryHit(name, call, help=help_text)

    async def search(self, query: str) -> Hits:
        matcher = self.matcher(query)
        for name, help_text, call in self._commands():
            if (score := matcher.match(name)) > 0:
                yield Hit(score, matcher.highlight(name), call, help=help_text)

    def _commands(self) -> Iterator[tuple[str, str, Any]]:
        app = self.app
        seen = set()
        for active in self.screen.active_bindings.values():
            binding: Binding = active.binding
            if (
                not active.enabled
                or not binding.id
                or binding.id in seen
                or binding.id.startswith("go.")
            ):
                continue
            seen.add(binding.id)
            prefix = binding.id.partition(".")[0]
            yield (
                f"{prefix}: {binding.description.lower()}",
                binding.tooltip,
                partial(app.run_action, binding.action, active.node),
            )
        screen = self.screen
        if isinstance(screen, KmintScreen):
            for what, command in screen.commands():
                yield f"copy command: {what}", command, partial(screen.copy, command, "command")
        for mode, title in MODE_TITLES:
            yield (
                f"view: {title.lower()}",
                f"Go to the {title} screen",
                partial(app.run_action, f"app.show_mode('{mode}')"),
            )
        for theme in THEMES:
            if theme != app.theme:
                yield (
                    f"theme: {theme.removeprefix('kmint-')}",
                    "Change the colours",
                    partial(app.run_action, f"app.use_theme('{theme}')"),
                )
