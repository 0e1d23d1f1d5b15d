"""An array of trace events, decoded piece by piece out of a stream of JSON bytes.

The buffer always starts with the '[' of an array. At the last "},{" of what has arrived the comma is
overwritten with ']', everything before it is decoded in place, and that byte becomes the '[' of the rest.
Such a slice decodes if and only if the cut lies between two events: inside a string or inside nested
arguments the slice is not JSON.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, Protocol

import msgspec

from .events import Dialect, Event, decoder, lenient, without_bare_words

LARGEST = 64 << 20
"""Bytes without an event after which reading ends."""

_TAIL = 1 << 14            # where the last boundary between events is looked for first
_CUTS = 20                 # boundaries that are tried before more text is waited for
_SLOW_FROM = 1 << 22       # bytes without a boundary that decodes, after which events are read one by one
_FRAGMENTS = 1 << 17       # pieces between two "},{" that are looked at in one go
_JOINED = 256              # of them, as many as one event may span
_LENIENT = 8               # of them, as many as an event may span that only the tolerant decoder reads
_WORD = 10                 # more bytes than a number or a word that the text's end cuts can have lost sense in

_HEAD = re.compile(rb'(?<!\\)"traceEvents"\s*:\s*\[')
_LIST = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[")
_CUT = re.compile(rb"\}\s*(,)\s*(?=\{)")
_EVENT = re.compile(rb',\s*\{[^{}]*"ph"\s*:\s*"\w"')
_COMMA = re.compile(rb"\s*,")
_CLOSE = re.compile(rb"\s*,?\s*\]")
_LAST_CLOSE = re.compile(rb'\}\s*(\])\s*(?:$|\}\s*$|,\s*"[^"]*"\s*:)')
_BYTE = re.compile(r"\(byte (\d+)\)")
_RAW = msgspec.json.Decoder(msgspec.Raw).decode
_REFUSED = (msgspec.DecodeError, RecursionError)


class Sink(Protocol):
    def take(self, events: list[Event], text: bytes | memoryview, dialect: Dialect) -> Dialect:
        """Take over `events`, decoded from `text`. Answers the dialect that they should have been decoded in:
        where that differs from `dialect` nothing was taken, and they come again."""
        ...


class EventStream:
    """Feeds a sink with the events of one file.

    After `run`: `found` (there is an array of events), `given_up` (LARGEST was reached), `unreadable` (events
    that could not be decoded), `meta` (what else the root says), `cut_at` (byte of the text where it breaks
    off, None if it is whole).
    """

    def __init__(self, sink: Sink, notes: list[str]) -> None:
        self.found = False
        self.given_up = False
        self.unreadable = 0
        self.cut_at: int | None = None
        self.meta: dict[str, Any] = {}
        self.start = b""
        """The text's first bytes."""
        self._notes = notes
        self._sink = sink
        self._dialect = Dialect()
        self._buffer = bytearray()
        self._lost = False              # the buffer may begin inside a damaged event
        self._gone = 0                  # bytes of the text that came before the buffer
        self._patience = 0              # size of the buffer below which another try is not worth it

    def run(self, pieces: Iterable[bytes]) -> None:
        head, ended = b"", False
        for piece in pieces:
            self._buffer += piece
            if not self.found:
                head = self._find_array()
            if self.found and not ended and len(self._buffer) >= self._patience:
                ended = self._feed()
            if len(self._buffer) > LARGEST:
                self.given_up = True
                break
        if self.found and not ended:
            ended = self._finish()
        if self.found and self.given_up:
            self._notes.append(f"reading ended at byte {self._gone:,} of the text: no event in the"
                               f" {LARGEST >> 20} MiB that follow")
            self.cut_at = None
        if self.found:
            self._read_meta(head, bytes(self._buffer) if ended else b"}")

    def _find_array(self) -> bytes:
        """Find where the array of events begins and leave the buffer at its '['. Returns what lies before."""
        self.start = self.start if len(self.start) >= 64 else bytes(self._buffer[:64])
        match = _LIST.match(self._buffer) or _HEAD.search(self._buffer, max(0, self._patience - 64))
        if not match:
            self._patience = len(self._buffer)      # searched so far
            return b""
        head = bytes(self._buffer[:match.end() - 1])
        self._patience, self.found = 0, True
        self._drop(match.end() - 1)
        return head

    def _drop(self, size: int) -> None:
        del self._buffer[:size]
        self._gone += size

    def _start_at(self, comma: int) -> None:
        """Begin the buffer with the event after this comma."""
        self._buffer[comma] = ord("[")
        self._drop(comma)
        self._patience = 0

    def _decode(self, end: int) -> None:
        with memoryview(self._buffer)[:end] as text:
            events = decoder(self._dialect)(text)
            while (wanted := self._sink.take(events, text, self._dialect)) != self._dialect:
                self._dialect = wanted
                events = decoder(wanted)(text)

    def _feed(self) -> bool:
        """Decode up to the last boundary between events. True once the array has ended."""
        if self._lost:
            cuts = deque(_CUT.finditer(self._buffer), maxlen=1)
            return bool(cuts) and self._one_by_one(cuts[0].start(1))
        for start in dict.fromkeys((max(0, len(self._buffer) - _TAIL), 0)):
            for match in reversed(deque(_CUT.finditer(self._buffer, start), maxlen=_CUTS)):
                cut = match.start(1)
                self._buffer[cut] = ord("]")
                try:
                    self._decode(cut + 1)
                except _REFUSED as error:
                    self._buffer[cut] = ord(",")
                    if end := _end_of_value(error):
                        return self._array_end(end)
                    if not _truncated(error):
                        return self._one_by_one(cut)
                else:
                    self._start_at(cut)
                    return False
        self._patience = 2 * len(self._buffer)
        if len(self._buffer) > _SLOW_FROM and (cuts := deque(_CUT.finditer(self._buffer), maxlen=1)):
            return self._one_by_one(cuts[0].start(1))
        return False

    def _array_end(self, end: int) -> bool:
        """The array ends at `end`: take what lies before it; the rest is metadata."""
        try:
            self._decode(end)
        except _REFUSED:                                    # in another dialect than the one just tried
            return self._one_by_one(end)
        self._drop(end)
        return True

    def _finish(self) -> bool:
        """The text has ended. True if the array has its end."""
        ended = False
        try:
            if not self._lost:
                self._decode(len(self._buffer))             # a list root ends with its array
                self._drop(len(self._buffer))
                ended = True
        except _REFUSED as error:
            ended = self._array_end(end) if (end := _end_of_value(error)) else False
        if not ended and not self._one_by_one(len(self._buffer), last=True):
            self.cut_at = self._gone
            return False
        return True

    def _one_by_one(self, until: int, last: bool = False) -> bool:
        """Slow and tolerant, for text with an event that does not decode: one event after the other, each
        from a "},{" to one that follows. `last`: no more text will come. True once the array has ended."""
        text = bytes(self._buffer[:until])
        if (plain := without_bare_words(text)) != text:
            self._buffer[:until] = plain
            self._gone -= len(plain) - len(text)
            return self._finish() if last else self._feed()
        commas = [match.start(1) for match in islice(_CUT.finditer(text), _FRAGMENTS)]
        ends = [*commas, until] if len(commas) < _FRAGMENTS else commas
        events: list[Event] = []
        texts: list[bytes] = []
        unreadable, done, comma, ended, lost = 0, 0, 0, False, self._lost
        while (start := comma + 1) < ends[-1] and not ended:
            i = bisect_right(ends, start)
            event, end = self._event_in(text, start, ends[i:i + _JOINED], len(ends) - i <= _JOINED, last)
            if not end:
                break                                       # it goes on beyond the text
            if lost and event is not None and not event.ph:
                comma = ends[i]                             # still inside the event that is damaged
                continue
            lost = event is None
            if event is not None:
                events.append(event)
                texts.append(text[start:end])
            elif text[start:end].strip(b" \t\r\n,]"):
                unreadable += 1
                if last and end == until and (close := _LAST_CLOSE.search(text, start)):
                    end = close.start(1)
            done = end
            if close := _CLOSE.match(text, done):
                done, ended = close.end(), True
            elif after := _COMMA.match(text, done):
                comma = after.end() - 1
            else:
                comma = ends[bisect_left(ends, done)]
                if text[done:comma].strip():
                    unreadable, lost = unreadable + 1, True
        wanted = self._sink.take(events, b"[" + b",".join(texts) + b"]", self._dialect)
        if wanted != self._dialect:
            self._dialect = wanted
            return self._one_by_one(until, last)
        self.unreadable += unreadable
        self._lost = lost and not ended
        if ended or (last and ends[-1] == until):
            self._drop(done)
            return ended
        self._start_at(comma)
        if comma == 0:
            self._patience = 2 * len(self._buffer)          # no progress without more text
        return last and self._one_by_one(len(self._buffer), last)

    def _event_in(self, text: bytes, start: int, ends: list[int], all_there: bool,
                  last: bool) -> tuple[Event | None, int]:
        """The event that begins at `start` and ends at one of `ends`, or before the first: what was made of it
        (None: unreadable) and its end. End 0: it is not complete. `all_there`: no further ends exist; `last`: no
        more text will come."""
        # a stray bracket would swallow all events that follow
        most = 1 if text[start:start + 64].lstrip()[:1] == b"[" else len(ends)
        end, size, incomplete = 0, 1, True
        while not end and incomplete and size <= most:
            try:
                _RAW(text[start:ends[size - 1]])
                end = ends[size - 1]
            except _REFUSED as error:
                incomplete = _truncated(error) or (
                    last and ends[size - 1] == len(text) and _position(error) > len(text) - start - _WORD)
                end = start + after if (after := _end_of_value(error)) else 0
            size = size + 1 if size == most else min(2 * size, most)
        if end:
            one = text[start:end]
            try:
                return decoder(self._dialect)(b"[" + one + b"]")[0], end
            except _REFUSED:
                return lenient(one, self._dialect), end
        close = _LAST_CLOSE.search(text, start) if last and all_there else None
        for end in [*ends[:_LENIENT], *([close.start(1)] if close else ())]:
            if event := lenient(text[start:end], self._dialect):
                return event, end
        damaged = last and _EVENT.search(text, ends[0], ends[-1])       # others follow, so it was not the last
        return None, 0 if incomplete and all_there and most == len(ends) and not damaged else ends[0]

    def _read_meta(self, head: bytes, tail: bytes) -> None:
        if not head.strip(b"\xef\xbb\xbf \t\r\n"):
            return                                          # a list root says nothing else
        for end in (tail, b"}"):
            text = without_bare_words(head + b"[]" + end)
            try:
                self.meta = json.loads(text.decode("utf-8-sig", "replace"), strict=False)
                break
            except (ValueError, RecursionError):
                self.meta = {}
                note = "what the file says about its capture is damaged: left out"
                self._notes += [note] * (note not in self._notes)
        self.meta.pop("traceEvents", None)


def _truncated(error: Exception) -> bool:
    return "truncated" in str(error)


def _end_of_value(error: Exception) -> int:
    """Where the JSON value ended, if the decoder met something after it; else 0."""
    return _position(error) - 1 if "trailing characters" in str(error) else 0


def _position(error: Exception) -> int:
    """The byte that the decoder names; 0 where it names none."""
    found = _BYTE.search(str(error))
    return int(found[1]) if found else 0
