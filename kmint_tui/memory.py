"""How much main memory can be had.

The kernel says, within the limit of the container. Files that the container has read or written lie in its memory too, until
something else needs it, so they count as free.
"""

from __future__ import annotations

from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")
_RECLAIMABLE = ("inactive_file", "active_file", "slab_reclaimable")


def available_memory() -> int | None:
    """Bytes of main memory that can be had without swapping; None where the system does not say."""
    fields = dict(line.split(":", 1) for line in _read(Path("/proc/meminfo")).splitlines() if ":" in line)
    words = fields.get("MemAvailable", "").split()
    if not words:
        return None
    free = int(words[0]) << 10
    limit, used = _read(_GROUP / "memory.max"), _read(_GROUP / "memory.current")
    if not (limit.isdecimal() and used.isdecimal()):
        return free
    counts = dict(line.split(None, 1) for line in _read(_GROUP / "memory.stat").splitlines() if " " in line)
    taken = int(used) - sum(int(counts.get(name, 0)) for name in _RECLAIMABLE)
    return min(free, max(0, int(limit) - max(0, taken)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
