"""What the installed llama.cpp knows, told by its library's own texts, without loading it.

llama.cpp compares the names of architectures and pre-tokenizers in a file with names compiled into it. A name that the
library does not contain is one that it would refuse; where the library is not found, nothing is refused here.
"""

from __future__ import annotations

import mmap
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from kmint_tui.errors import ModelError

# The version of llama-cpp-python from which on a name is known.
SINCE = {"qwen35": "0.3.17", "minicpm5": "0.3.26"}


def require(path: Path, what: str, name: str) -> None:
    """Raise ModelError, naming the version that is needed, when the installed llama.cpp does not know `name`."""
    if knows(name) is not False:
        return
    try:
        have = version("llama-cpp-python")
    except PackageNotFoundError:
        have = "?"
    wanted = f"{SINCE[name]} or later" if name in SINCE else "a later one, if any knows it"
    raise ModelError(
        f"{path}: the installed llama-cpp-python {have} does not know the {what} {name[:80]!r}", fix=f"it needs llama-cpp-python {wanted}"
    )


@cache
def knows(name: str) -> bool | None:
    """Whether the installed llama.cpp contains `name`; None when it is not found."""
    library = _library()
    if library is None or not library.is_file() or not name:
        return None if library is None else False
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        return view.find(name.encode("utf-8", "replace") + b"\0") >= 0


def _library() -> Path | None:
    spec = find_spec("llama_cpp")
    places = [Path(place) / "lib" for place in (spec.submodule_search_locations or ())] if spec else []
    return next((path for folder in places for path in sorted(folder.glob("libllama.*")) if path.is_file()), None)
