"""The layers of the sandbox that a command requires: an option, a variable, or the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmint_tui import config, paths
from kmint_tui.config import switched_on
from kmint_tui.errors import EnvironmentUnfit, UsageError

if TYPE_CHECKING:
    from referee.sandbox.demand import Demand

REQUIRE, ALLOW = "--require-sandbox", "--allow-weak-sandbox"
REQUIRE_VARIABLE, ALLOW_VARIABLE = "KMINT_REQUIRE_SANDBOX", "KMINT_ALLOW_WEAK_SANDBOX"
TITLE = "the sandbox is too weak here"
_ELSEWHERE = "use a newer kernel or a less restricted container (`kmint doctor` names every layer)"
_FIXES: dict[Demand, str] = {
    "all": f"{_ELSEWHERE}, or leave {REQUIRE} out",
    "files": f"{_ELSEWHERE}, or accept the risk with {ALLOW}",
    "any": _ELSEWHERE,
}


def demand(*, require: bool = False, allow_weak: bool = False) -> Demand:
    """The required layers. An option goes before a variable, a variable before the settings.

    `require` and `allow_weak` are the two options. Raises UsageError where one place asks for both,
    and ConfigError for wrong settings.
    """
    settings = config.load(paths.config_file()).config
    asked = (
        (REQUIRE, require, ALLOW, allow_weak),
        (
            REQUIRE_VARIABLE,
            switched_on(REQUIRE_VARIABLE),
            ALLOW_VARIABLE,
            switched_on(ALLOW_VARIABLE),
        ),
        (
            "sandbox.require",
            settings.sandbox_require,
            "sandbox.allow_weak",
            settings.sandbox_allow_weak,
        ),
    )
    for requires, required, allows, allowed in asked:
        if required and allowed:
            raise UsageError(
                f"{requires} and {allows} exclude each other", fix="leave one of them out"
            )
        if required or allowed:
            return "all" if required else "any"
    return "files"


def check(wanted: Demand) -> None:
    """Raise EnvironmentUnfit where this host lacks a required layer, before anything is drafted."""
    from referee.sandbox import landlock
    from referee.sandbox.zygote import SandboxTooWeak, Zygote

    if wanted == "any" or (wanted == "files" and landlock.is_there()):
        return
    try:
        with Zygote(preload=(), demand=wanted) as server:
            _ = server.protections
    except SandboxTooWeak as weak:
        raise too_weak(str(weak), wanted) from weak


def too_weak(reason: str, wanted: Demand) -> EnvironmentUnfit:
    """The error for a host that lacks a required layer."""
    return EnvironmentUnfit(reason, title=TITLE, fix=_FIXES[wanted])
