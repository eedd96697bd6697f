"""The installed llama-cpp-python: its version, its libraries, and the names that they know.

llama.cpp compares the names of architectures and pre-tokenizers in a file with names compiled into
its library. It refuses a name that the library does not contain. Nothing here loads the library;
without one nothing is refused.
"""

from __future__ import annotations

import mmap
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from kmint_tui.errors import ModelError

# The first version of llama-cpp-python with each name.
SINCE = {"qwen35": "0.3.17", "minicpm5": "0.3.26"}


@cache
def llama_version() -> str | None:
    """The version of llama-cpp-python; None if it is not installed.

    A confined process cannot list installed packages, so it asks before its confinement.
    """
    # Imported on use: the import takes as long as that of the whole smith.
    from importlib import metadata

    try:
        return metadata.version("llama-cpp-python")
    except metadata.PackageNotFoundError:
        return None


def llama_files(pattern: str) -> list[Path]:
    """The files of the installed llama.cpp's library folder that match, sorted; [] without one."""
    spec = find_spec("llama_cpp")
    places = spec.submodule_search_locations or () if spec else ()
    return [path for place in places for path in sorted((Path(place) / "lib").glob(pattern))]


def require(path: Path, what: str, name: str) -> None:
    """Raise ModelError with the needed version when the installed llama.cpp lacks `name`."""
    if knows(name) is not False:
        return
    have = llama_version() or "?"
    wanted = f"{SINCE[name]} or later" if name in SINCE else "a later one, if one supports it"
    raise ModelError(
        f"{path}: the installed llama-cpp-python {have} does not know the {what} {name[:80]!r}",
        fix=f"it needs llama-cpp-python {wanted}",
    )


@cache
def knows(name: str) -> bool | None:
    """True when the installed llama.cpp contains `name`; None without its library."""
    library = _library()
    if library is None or not library.is_file() or not name:
        return None if library is None else False
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        return view.find(name.encode("utf-8", "replace") + b"\0") >= 0


def _library() -> Path | None:
    return next((path for path in llama_files("libllama.*") if path.is_file()), None)
