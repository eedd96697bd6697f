"""Turns token bytes into streamed text; UTF-8 and stop strings may cross token borders.

Text that may still become part of a stop string is held back until that is decided.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

FENCE_MARK = "```"
CLOSING_FENCE = "\n```"


class Utf8Stream:
    """Decodes bytes that may be cut anywhere.

    Invalid bytes, also an incomplete character at the end, become U+FFFD.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: bytes) -> str:
        """The characters completed by these bytes."""
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """The rest of the text, after the last bytes."""
        return self._decoder.decode(b"", final=True)


class StopMatcher:
    """Passes text up to the first stop string, which is removed.

    With an `opener`, stops count only after it: a closing fence stops an answer only after an
    opening one. The passed text never depends on the cuts of the input.
    """

    def __init__(self, stops: Sequence[str], *, opener: str = "") -> None:
        if any(not stop for stop in stops):
            raise ValueError("a stop string must not be empty")
        self._stops = tuple(stops)
        self._opener = opener
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """The text that certainly precedes any stop string; "" once stopped."""
        if self.stopped:
            return ""
        self._held += text
        passed = ""
        if self._opener:
            at = self._held.find(self._opener)
            if at < 0:
                return self._release(_overlap(self._held, (self._opener,)))
            end = at + len(self._opener)
            passed, self._held, self._opener = self._held[:end], self._held[end:], ""
        # The stop that is complete first wins, so that the cuts of the input change nothing.
        found = [(at + len(stop), at) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            self.stopped = True
            passed, self._held = passed + self._held[: min(found)[1]], ""
            return passed
        return passed + self._release(_overlap(self._held, self._stops))

    def finish(self) -> str:
        """The text held back, once the input has ended."""
        return self._release(0)

    def _release(self, keep: int) -> str:
        cut = len(self._held) - keep
        passed, self._held = self._held[:cut], self._held[cut:]
        return passed


class DraftText:
    """The text of one draft: bytes in, text out, up to the closing fence.

    `inside` means that the prompt already opened the fence.
    """

    def __init__(self, *, inside: bool) -> None:
        self._bytes = Utf8Stream()
        self._stop = StopMatcher((CLOSING_FENCE,), opener="" if inside else FENCE_MARK)
        self.text = ""

    @property
    def stopped(self) -> bool:
        """True once the closing fence has passed."""
        return self._stop.stopped

    def feed(self, piece: bytes) -> str:
        """Add one token's bytes. Returns the newly certain text and appends it to `text`."""
        return self._append(self._stop.feed(self._bytes.feed(piece)))

    def finish(self) -> str:
        """Release the held text; a fence at the very end still counts as a stop."""
        return self._append(self._stop.feed(self._bytes.finish()) + self._stop.finish())

    def _append(self, text: str) -> str:
        self.text += text
        return text


def _overlap(text: str, stops: Sequence[str]) -> int:
    """Length of the longest end of `text` that is a proper beginning of a stop string."""
    longest = min(len(text), max(map(len, stops), default=1) - 1)
    if not any(stop[0] in text[-longest:] for stop in stops if longest):
        return 0
    for length in range(longest, 0, -1):
        if any(stop.startswith(text[-length:]) for stop in stops if len(stop) > length):
            return length
    return 0
