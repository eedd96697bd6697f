"""What kmint answers where a command, an argument or a value is missing."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from kmint_tui.cli import main
from kmint_tui.cli.framework import LazyGroup
from tests.cli.runner import kmint

pytestmark = pytest.mark.usefixtures("warm")


def commands(
    group: click.Command = main.kmint, path: str = "kmint"
) -> Iterator[tuple[str, click.Command]]:
    """Every command of the program with the words that call it."""
    yield path, group
    if isinstance(group, LazyGroup):
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None
            yield from commands(command, f"{path} {name}")


@pytest.mark.parametrize("verb", ["show 12.3", "diff 12.3 12.4", "rejudge 12", "export"])
def test_a_verb_of_the_history_points_there(verb: str) -> None:
    done = kmint(*verb.split())
    assert (done.code, done.out) == (2, "")
    assert f"Did you mean `kmint history {verb}`" in done.err


@pytest.mark.parametrize(
    ("arguments", "needs"),
    [
        (["grid"], "`kmint grid` needs ID|FILE"),
        (["crowns", "claim"], "`kmint crowns claim` needs ID"),
        (["history", "show"], "`kmint history show` needs ID"),
        (["history", "diff", "1.1"], "`kmint history diff` needs B"),
        (["save", "1.1"], "`kmint save` needs --to DIR"),
        (["mint", "softmax", "--save"], "--save needs a value: --save DIR"),
        (["mint", "softmax", "--save", "--json"], "--save needs a value: --save DIR"),
    ],
)
def test_a_missing_value_is_named_and_explained(arguments: list[str], needs: str) -> None:
    done = kmint(*arguments)
    assert (done.code, done.out) == (2, "")
    wrong, fix = done.err.splitlines()
    assert wrong == f"error: wrong request: {needs}"
    assert len(fix.split()) > 4


def test_a_value_that_looks_like_an_option_is_kept_after_equals() -> None:
    done = kmint("ops", "--search=--json")
    assert (done.code, "no such option" in done.err) == (0, False)


def test_every_argument_and_option_has_help() -> None:
    bare = [
        f"{path} {param.name}"
        for path, command in commands()
        for param in command.params
        if isinstance(param, (click.Argument, click.Option)) and not param.help
    ]
    assert bare == []


def test_words_in_several_arguments_are_told_of_quotes() -> None:
    assert "quotes" in kmint("mint", "rmsnorm", "residual").err


def test_words_are_taken_for_one_operation_and_it_says_so() -> None:
    done = kmint("mint", "rmsnorm residual silu", "--dry-run", "--json")
    assert (done.code, done.document["op"]) == (0, "add_rmsnorm_silu")
    assert (
        done.err
        == "'rmsnorm residual silu' is taken for add_rmsnorm_silu: residual + RMSNorm -> SiLU\n"
    )
    assert kmint("ops", "show", "add_rmsnorm_silu").err == ""


def test_ambiguous_words_are_answered_with_the_candidates() -> None:
    done = kmint("mint", "residual norm")
    assert (done.code, done.out) == (2, "")
    assert "add_rmsnorm, add_layernorm" in done.err
    assert '`kmint ops --search "residual norm"` lists them all' in done.err


@pytest.mark.parametrize("text", ["layer norm", "add rms", "rms residual"])
def test_ops_finds_by_words(text: str) -> None:
    done = kmint("ops", "--search", text, "--json")
    assert done.document["ops"]
