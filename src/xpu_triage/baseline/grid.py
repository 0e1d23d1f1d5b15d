"""The loads of a comparison as a grid, and how a slow-down lies in it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from .compare import MATTERS, Comparison, Entry, State
from .figures import THROUGHPUT
from .loads import alike
from .store import Cell

PLACED = 0.001
"""Of a single interval. That something is slower is sure already; this says where, and a load that is taken for slow
beside the one that is would name another stage."""

CLEAR = 2.5
"""Standard errors of the difference between two loads of the same two recordings, for the same purpose."""

FAR = 8.0
"""Factor between the loads that are asked for: near ones do not tell a dimension."""

MAX_ASKED = 3

_OPEN = (State.UNCLEAR, State.UNKNOWN)

DIMENSIONS = ("concurrency", "prompt_tokens", "output_tokens")


class Grid:
    """The loads as a grid, and how the effect lies in it."""

    def __init__(self, comparison: Comparison) -> None:
        self._c = comparison
        self.cells = comparison.cells
        concurrencies = [cell.concurrency for cell in self.cells if cell.concurrency is not None]
        self._lowest = min(concurrencies, default=None)

    # ---- one metric in one load

    def has(self, metric: str) -> bool:
        return any(entry.metric == metric for entry in self._c.entries)

    def slower(self, entry: Entry | None) -> bool:
        """Surely so, given that something is."""
        if entry is None or entry.state is State.CLIENT:
            return False
        if entry.state is State.WORSE:
            return True
        return entry.difference is not None and entry.effect >= max(math.log(MATTERS), entry.difference.half(PLACED))

    def states(self, metric: str) -> set[State]:
        """Of the loads in which it was measured in both."""
        return {entry.state for entry in self._c.entries if entry.metric == metric}

    def ruled_out(self, metric: str) -> bool:
        """Over all loads together."""
        return any(p.metric == metric and p.state in (State.SAME, State.BETTER) for p in self._c.pooled)

    def worse(self, metric: str) -> list[Cell]:
        return [cell for cell in self.cells if self.slower(self._c.entry(cell, metric))]

    def alone_at_lowest(self, metric: str) -> bool:
        """Slower where fewest requests run, or in the mean over all loads where no single one is sure."""
        cells = [cell for cell in self.worse(metric) if self._lowest is None or cell.concurrency == self._lowest]
        sure = any(p.metric == metric and p.state is State.WORSE for p in self._c.pooled)
        return bool(cells) or (sure and not self.worse(metric))

    def as_much(self, metric: str, slower: str) -> bool:
        """Whether a metric that no load allows a claim of is up by half as much or more as one that is slower for sure,
        where fewest requests run: it is noise that hides it, and not that it is as before."""
        cells = [cell for cell in self.worse(slower) if self._lowest is None or cell.concurrency == self._lowest]
        pairs = [(one, other) for cell in cells if (one := self._c.entry(cell, metric)) is not None
                 and (other := self._c.entry(cell, slower)) is not None]
        if not pairs or self.ruled_out(metric) or any(one.state not in _OPEN for one, _ in pairs):
            return False
        return 2 * sum(one.effect for one, _ in pairs) >= sum(other.effect for _, other in pairs)

    def lowest_is_only_one(self) -> bool:
        return len(self._levels("concurrency")) < 2

    def everywhere(self) -> str:
        return " in every load" if len(self.cells) > 1 and all(
            any(self.slower(self._c.entry(cell, metric)) for metric in ("ttft", "itl", "e2e")) for cell in self.cells
        ) else ""

    # ---- along one dimension

    def told(self, metric: str, along: str) -> bool:
        return bool(list(self._ends(metric, along)))

    def grows(self, metric: str, along: str) -> bool:
        """The effect is larger at the far end of the dimension, all else alike."""
        return self._moves(metric, along, 1)

    def shrinks(self, metric: str, along: str) -> bool:
        return self._moves(metric, along, -1)

    def only_long(self, metric: str, along: str) -> bool:
        """It grows, and at the near end there is none."""
        ends = list(self._ends(metric, along))
        return self.grows(metric, along) and not any(self.slower(near) for near, _ in ends)

    def _moves(self, metric: str, along: str, sign: int) -> bool:
        steps = [(far.effect - near.effect, near.se, far.se) for near, far in self._ends(metric, along)]
        known = [(step, math.hypot(a, b)) for step, a, b in steps if a is not None and b is not None]
        if not known:
            return False
        mean = sign * sum(step for step, _ in known) / len(known)
        se = math.sqrt(sum(error ** 2 for _, error in known)) / len(known)
        return mean >= max(math.log(MATTERS), CLEAR * se)

    def _ends(self, metric: str, along: str) -> Iterator[tuple[Entry, Entry]]:
        """Nearest and farthest load of each row along a dimension, the other two alike."""
        rows: list[list[Cell]] = []
        for cell in self.cells:
            if getattr(cell, along) is None:
                continue
            row = next((row for row in rows if _in_row(row[0], cell, along)), None)
            if row is None:
                rows.append([cell])
            else:
                row.append(cell)
        for row in rows:
            entries = [entry for cell in sorted(row, key=lambda cell: float(getattr(cell, along)))
                       if (entry := self._c.entry(cell, metric)) is not None and entry.state is not State.CLIENT]
            if len(entries) > 1 and not alike(getattr(entries[0].cell, along), getattr(entries[-1].cell, along)):
                yield entries[0], entries[-1]

    def _levels(self, along: str) -> list[float]:
        found: list[float] = []
        for value in sorted(float(getattr(cell, along)) for cell in self.cells if getattr(cell, along) is not None):
            if not found or not alike(found[-1], value):
                found.append(value)
        return found

    # ---- what does not fit a dimension, and what is missing

    def alone(self) -> Cell | None:
        """The one load that is slower, where it has neighbours on both sides that are not."""
        if any(p.state is State.WORSE for p in self._c.pooled) and not self._c.with_state(State.WORSE):
            return None
        slow = list(dict.fromkeys(cell for metric in ("ttft", "itl", "e2e", THROUGHPUT) for cell in self.worse(metric)))
        if len(slow) != 1 or len(self.cells) < 3:
            return None
        cell = slow[0]
        for along in DIMENSIONS:
            row = [other for other in self.cells if other != cell and _in_row(other, cell, along)]
            here = getattr(cell, along)
            if here is None or not row or all(alike(getattr(other, along), here) for other in row):
                continue
            farther = [other for other in row if (getattr(other, along) or 0) > here]
            if farther:  # what a dimension does to a load, it does to those beyond it
                return cell
        return None

    def untold(self) -> list[str]:
        """Dimensions with one value alone."""
        return [along for along in DIMENSIONS if len(self._levels(along)) < 2]

    def asked(self, missing: Sequence[str]) -> Iterator[Cell]:
        """For each dimension that is not told, the load that would tell it, beside one that there is."""
        largest = max(self.cells, key=lambda cell: tuple(-1.0 if v is None else v for v in cell))
        for along in missing[:MAX_ASKED]:
            here = getattr(largest, along)
            if here is not None:
                yield largest._replace(**{along: _other(along, here)})


def _other(along: str, here: float) -> float:
    """A value far enough from `here`: larger, but for a concurrency that is large already."""
    return max(1.0, here // FAR) if along == "concurrency" and here >= FAR else here * FAR


def _in_row(a: Cell, b: Cell, along: str) -> bool:
    return all(alike(x, y) for part, x, y in zip(Cell._fields, a, b, strict=True) if part != along)
