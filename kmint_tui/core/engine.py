"""The smith and the referee of the application: opened at the first use, kept warm, closed once."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from kmint_tui import paths
from kmint_tui.core.referee import demand, open_referee
from kmint_tui.errors import KmintError
from kmint_tui.smith import Options, Smith
from kmint_tui.smith.engine import own_log

if TYPE_CHECKING:
    from kmint_tui.minting.request import MintRequest
    from kmint_tui.smith.remote import RemoteSmith
    from referee.judge import Referee


class Engine:
    """One smith and one referee, for any thread. `close` ends their processes for good."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._open = ExitStack()
        self._referee: Referee | None = None
        self._smith: Smith | None = None
        self._model: Path | None = None
        self._closed = False

    @property
    def smith_ready(self) -> Smith | None:
        """The smith whose model is loaded, or None."""
        smith = self._smith
        return smith if smith is not None and smith.loaded is not None else None

    def referee(self) -> Referee:
        """The referee; the first call starts its processes in some seconds. Raises
        EnvironmentUnfit.
        """
        with self._guard:
            self._refuse_when_closed()
            if self._referee is None:
                self._referee = self._open.enter_context(open_referee(demand()))
            return self._referee

    def smith(self, model: Path) -> Smith:
        """The smith of that model file; the smith of another model is closed first."""
        with self._guard:
            self._refuse_when_closed()
            if self._smith is None or self._model != model:
                if self._smith is not None:
                    self._smith.close()
                options = Options(
                    log=own_log(), tuning=paths.private_dir(paths.cache_dir()) / "tuning.json"
                )
                self._smith, self._model = Smith(model, options), model
            return self._smith

    def forget_referee(self) -> None:
        """Close the referee after it failed, so that the next call starts a new one."""
        with self._guard:
            self._referee = None
            self._open.close()
            self._open = ExitStack()

    def close(self) -> None:
        """End all processes. Waits for a start that is under way."""
        with self._guard:
            self._closed = True
            if self._smith is not None:
                self._smith.close()
            self._smith = self._referee = None
            self._open.close()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise KmintError("kmint is closing", title="too late")


def smith_of(request: MintRequest, log: Path) -> Smith | RemoteSmith:
    """The smith of a request: a process on this machine, or an endpoint. `log` is the engine's log
    file.
    """
    from kmint_tui.models.endpoint import Answer
    from kmint_tui.smith.remote import RemoteSmith

    if request.endpoint is not None:
        more = [(one.url, one.model) for one in request.more]
        return RemoteSmith(request.endpoint.url, request.endpoint.model, Answer, more)
    return Smith(
        request.model.file.path,
        Options(log=log, tuning=paths.private_dir(paths.cache_dir()) / "tuning.json"),
    )
