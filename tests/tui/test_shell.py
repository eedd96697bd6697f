"""What all screens share: modes, help, palette, keys from the settings, themes, density, NO_COLOR."""

from __future__ import annotations

import os

import pytest
from textual.command import CommandList as PaletteList
from textual.widgets import Input, Select

from kmint_tui.app import KmintApp
from kmint_tui.screens import preferences
from kmint_tui.screens.base import KmintScreen
from kmint_tui.screens.command_list import CommandList
from kmint_tui.screens.confirm import Confirm
from kmint_tui.screens.help import Help
from kmint_tui.screens.jump import Jump
from kmint_tui.screens.key_ids import key_ids
from kmint_tui.screens.palette import Commands
from kmint_tui.widgets.screen_bars import MODE_TITLES, FactsBar
from tests.tui.conftest import Open, screen_text, settle, show_mode, toasts, until

pytestmark = pytest.mark.asyncio


async def test_every_screen_has_its_number(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        await pilot.press("escape")
        app.screen.set_focus(None)
        for number, (mode, title) in enumerate(MODE_TITLES, start=1):
            await pilot.press(str(number))
            app.jobs.cancel_all()
            await settle(pilot)
            screen = app.screen
            assert isinstance(screen, KmintScreen)
            assert screen.mode == mode
            assert f"{number} {title}" in screen_text(app)


async def test_a_click_on_the_bar_goes_there(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        await pilot.click("ModeBar .mode:last-child", offset=(3, 0))
        app.jobs.cancel_all()
        await settle(pilot)
        assert app.current_mode == "doctor"


@pytest.mark.parametrize("mode", [mode for mode, _ in MODE_TITLES])
async def test_help_shows_every_live_key_with_its_id(open_app: Open, mode: str) -> None:
    async with open_app((120, 60)) as (app, pilot):
        await show_mode(app, pilot, mode)
        live = [
            active.binding
            for active in app.screen.active_bindings.values()
            if active.binding.group is not None
        ]
        assert len(live) > 8
        await pilot.press("f1")
        await pilot.pause()
        assert isinstance(app.screen, Help)
        text = "\n".join(str(part.content) for part in app.screen.query(".group"))  # type: ignore[attr-defined]
        for binding in live:
            assert binding.tooltip
            assert binding.id
            assert binding.tooltip in text
            assert binding.id in text
        await pilot.press("escape")
        await pilot.pause()
        assert app.current_mode == mode


async def test_no_key_is_one_that_old_terminals_send_for_another(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        for mode, _ in MODE_TITLES:
            await show_mode(app, pilot, mode)
            keys = {
                key
                for key, active in app.screen.active_bindings.items()
                if active.binding.group is not None
            }
            assert not keys & {"ctrl+h", "ctrl+i", "ctrl+j", "ctrl+m"}


async def test_keys_theme_and_density_come_from_the_settings(open_app: Open) -> None:
    preferences.file().parent.mkdir(parents=True)
    preferences.file().write_text(
        'theme = "kmint-light"\ndensity = "compact"\n[keys]\n"app.help" = "f6"\n'
    )
    async with open_app() as (app, pilot):
        assert app.theme == "kmint-light"
        assert app.has_class("-compact")
        await pilot.press("f6")
        await pilot.pause()
        assert isinstance(app.screen, Help)


async def test_wrong_settings_are_told_and_cost_nothing_else(open_app: Open) -> None:
    preferences.file().parent.mkdir(parents=True)
    preferences.file().write_text('them = "x"\n')
    async with open_app() as (app, _):
        assert "unknown setting 'them'" in toasts(app)
        assert "did you mean theme?" in toasts(app)
        assert app.theme == preferences.THEMES[0]


async def test_a_key_that_does_not_exist_is_told(open_app: Open) -> None:
    preferences.file().parent.mkdir(parents=True)
    preferences.file().write_text('[keys]\n"app.helq" = "f6"\n"mint.start" = "f7"\n')
    async with open_app() as (app, pilot):
        await settle(pilot)
        assert "no key has the id 'app.helq'; did you mean 'app.help'?" in toasts(app)
        assert "mint.start" not in toasts(app)


async def test_every_key_can_be_rebound(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        known = key_ids(KmintApp)
        for mode, _ in MODE_TITLES:
            await show_mode(app, pilot, mode)
            live = {
                active.binding.id
                for active in app.screen.active_bindings.values()
                if active.binding.group is not None
            }
            assert live <= known


async def test_the_theme_and_the_density_are_remembered(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        await pilot.press("ctrl+t", "ctrl+d")
    chosen = preferences.load()
    assert (chosen.theme, chosen.density) == (preferences.THEMES[1], "compact")
    async with open_app() as (app, pilot):
        assert app.theme == preferences.THEMES[1]


async def test_the_palette_offers_what_can_be_done_now(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        names = [str(hit.text or hit.display) async for hit in Commands(app.screen).discover()]  # type: ignore[union-attr]
        assert "mint: mint" in names
        assert "view: history" in names
        assert "copy: copy command" in names
        assert "theme: light" in names
        assert not [name for name in names if name in ("mint: cancel", "mint: save", "theme: dark")]
        await pilot.press("ctrl+p")
        await pilot.pause()
        await pilot.press(*"view: doctor")
        offered = app.screen.query_one(PaletteList)
        await until(
            pilot,
            lambda: (
                offered.highlighted == 0
                and "view: doctor" in str(offered.get_option_at_index(0).prompt)
            ),
        )
        await settle(pilot)
        await pilot.press("enter")
        await until(pilot, lambda: app.current_mode == "doctor")


async def test_the_facts_say_model_gpu_and_network(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KMINT_OFFLINE", "1")
    async with open_app() as (app, _):
        shown = str(app.screen.query_one(FactsBar).render())
        assert "embedded" in shown or "no model" in shown
        assert "OFFLINE" in shown
        assert "KMINT_OFFLINE" in shown


async def test_jumping_goes_to_what_has_the_letter(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        await pilot.press("ctrl+o")
        await pilot.pause()
        assert isinstance(app.screen, Jump)
        await pilot.press("b")
        await pilot.pause()
        assert app.focused is not None
        assert app.focused.id == "norm"


async def test_no_color_is_honoured_and_kept_for_the_children(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with open_app() as (app, _):
        assert app.no_color
        assert os.environ["NO_COLOR"] == "1"
        strips = app.screen._compositor.render_strips()
        styles = [
            segment.style
            for strip in strips
            for segment in strip.apply_filter(app._filters[0], app.background_colors[0])
        ]
        triplets = [
            style.color.triplet
            for style in styles
            if style is not None and style.color is not None and style.color.triplet
        ]
        assert triplets
        assert all(colour.red == colour.green == colour.blue for colour in triplets)


async def test_copying_the_command(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        app.screen.query_one("#repair", Input).value = "2"
        app.screen.query_one("#tune", Select).value = "yes"
        app.screen.query_one("#until", Select).value = "first"
        app.screen.set_focus(None)
        await pilot.press("C")
        assert app.clipboard == "kmint mint rmsnorm --drafts 8 --until first --repair 2 --tune"


async def test_one_of_several_commands_is_chosen(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        await show_mode(app, pilot, "doctor")
        await pilot.press("C")
        await pilot.pause()
        assert isinstance(app.screen, CommandList)
        assert "redacted report" in screen_text(app)
        await pilot.press("j", "enter")
        await pilot.pause()
        assert app.clipboard == "kmint doctor --report FILE"
        await pilot.press("C")
        await pilot.pause()
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, KmintScreen)
        names = [str(hit.text or hit.display) async for hit in Commands(app.screen).discover()]  # type: ignore[union-attr]
        assert "copy command: redacted report" in names


async def test_a_question_is_no_by_default(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        answers: list[bool | None] = []
        for keys in (["enter"], ["escape"], ["n"], ["y"], ["left", "enter"]):
            app.push_screen(Confirm("Really?", "It cannot be undone.", "Do it"), answers.append)
            await pilot.pause()
            await pilot.press(*keys)
            await pilot.pause()
        assert answers == [False, False, False, True, True]


async def test_numbers_go_into_a_field_that_has_the_focus(open_app: Open) -> None:
    async with open_app() as (app, pilot):
        field = app.screen.query_one("#seed", Input)
        field.focus()
        await pilot.press("4", "2")
        assert (field.value, app.current_mode) == ("42", "mint")
