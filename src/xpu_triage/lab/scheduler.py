"""Continuous batching without a device: who runs in the next iteration, on how many tokens, in whose cache blocks.

The healthy rules are those of today's engines: running requests decode first, one token each; what is left of the
token budget goes to prompts, in pieces; a request is admitted when a place in the batch and blocks for its whole text
are free; where a decode finds no free block the request that was admitted last gives its own back and is computed
again. A `Policy` changes one of the rules, as a serving fault does.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

BLOCK_TOKENS = 16


def blocks(tokens: int) -> int:
    """Blocks that hold so many tokens."""
    return -(-tokens // BLOCK_TOKENS)


@dataclass(frozen=True)
class Limits:
    """What is configured once."""

    seats: int
    """Most requests in the running batch."""
    tokens: int
    """Most tokens of one iteration."""
    context: int
    """Most tokens of one request, prompt and answer."""
    kv_blocks: int
    """Blocks of the pool; at least those of one request of the greatest length."""

    def __post_init__(self) -> None:
        if self.kv_blocks < blocks(self.context):
            raise ValueError(f"{self.kv_blocks} blocks do not hold one request of {self.context} tokens")
        if self.tokens <= self.seats:
            raise ValueError(f"{self.tokens} tokens an iteration leave nothing to prompts beside {self.seats} decodes")


@dataclass(frozen=True)
class Policy:
    """What a serving fault changes."""

    prefill_first: bool = False
    """No decode while a prompt can be computed."""
    admission_pause_s: float | None = None
    """One request at a time, and so long a pause after it, though there is room."""
    smallest_pool: bool = False
    """The pool holds one request of the greatest length, and no more."""


HEALTHY = Policy()


class Sequence(Protocol):
    """What the scheduler knows of a request, and keeps of it."""

    prompt: int
    """Tokens of the prompt."""
    generated: int
    """Tokens of the answer so far; the engine counts them up."""
    computed: int
    """Tokens whose keys and values are in the cache."""
    seat: int
    """Place in the batch; -1 while it waits."""
    preemptions: int


S = TypeVar("S", bound=Sequence)


@dataclass(frozen=True)
class Plan(Generic[S]):
    """One iteration."""

    prefills: tuple[tuple[S, int], ...]
    """Requests whose text is computed, and how many tokens of it."""
    decodes: tuple[S, ...]
    """Requests that get their next token."""
    retry_s: float | None = None
    """Where there is nothing to run: the time after which to ask again; None: when something changes."""

    def __bool__(self) -> bool:
        return bool(self.prefills or self.decodes)

    @property
    def prefill_tokens(self) -> int:
        return sum(tokens for _, tokens in self.prefills)


class Scheduler(Generic[S]):
    """The waiting queue, the running batch and the block pool. For one thread."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.policy = limits, HEALTHY
        self.waiting: deque[S] = deque()
        self.running: list[S] = []
        """In the order of their admission."""
        self.preemptions = 0
        self._held: dict[int, int] = {}  # blocks by seat
        self._free_seats = list(range(limits.seats))[::-1]
        self._admit_from = 0.0

    @property
    def kv_blocks(self) -> int:
        """The pool's size under the present policy."""
        return blocks(self.limits.context) if self.policy.smallest_pool else self.limits.kv_blocks

    @property
    def kv_used(self) -> int:
        return sum(self._held.values())

    def add(self, sequence: S) -> None:
        """A request has arrived; its prompt and answer must fit into `limits.context`."""
        self.waiting.append(sequence)

    def remove(self, sequence: S, now_s: float) -> None:
        """A request is done, or its reader has gone."""
        if sequence.seat >= 0:
            self.running.remove(sequence)
            self._leave(sequence)
            self._admit_from = now_s + (self.policy.admission_pause_s or 0.0)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)

    def plan(self, now_s: float) -> Plan[S]:
        """Who runs next. Preempts and admits on the way; `now_s` is any clock that only goes forward."""
        before = self.preemptions
        while self.running and self.kv_used > self.kv_blocks:  # the pool has become smaller
            self._preempt()
        decodes: list[S] = []
        if self.policy.prefill_first:
            prefills = self._prefills(self.limits.tokens, now_s, admit=True)
            if not prefills:
                decodes = self._decodes()
        else:
            decodes = self._decodes()
            # As in vLLM: nobody is let in where somebody has just been put out.
            prefills = self._prefills(self.limits.tokens - len(decodes), now_s, admit=self.preemptions == before)
        stalled = self.waiting and not self.running and self.policy.admission_pause_s is not None
        return Plan(tuple(prefills), tuple(decodes), max(self._admit_from - now_s, 0.0) if stalled else None)

    def ran(self, plan: Plan[S]) -> tuple[S, ...]:
        """The iteration is done: counts what was computed. Those that have a new token, prefills first."""
        for sequence, tokens in plan.prefills:
            sequence.computed += tokens
        for sequence in plan.decodes:
            sequence.computed += 1
        return (*(s for s, _ in plan.prefills if _left(s) == 0), *plan.decodes)

    def _decodes(self) -> list[S]:
        ready = [s for s in self.running if _decodes(s)]
        for sequence in ready:
            while sequence.seat >= 0 and not self._fit(sequence, sequence.computed + 1):
                self._preempt()
        return [s for s in ready if s.seat >= 0]

    def _prefills(self, budget: int, now_s: float, *, admit: bool) -> list[tuple[S, int]]:
        chosen: list[tuple[S, int]] = []
        for sequence in self.running:
            if budget and not _decodes(sequence):
                chosen.append((sequence, min(_left(sequence), budget)))
                budget -= chosen[-1][1]
        while admit and budget and self.waiting and self._free_seats and not self._held_back(now_s):
            sequence = self.waiting[0]
            sequence.seat = self._free_seats[-1]
            if not self._fit(sequence, sequence.prompt + sequence.generated):
                sequence.seat = -1
                break
            self._free_seats.pop()
            self.running.append(self.waiting.popleft())
            chosen.append((sequence, min(_left(sequence), budget)))
            budget -= chosen[-1][1]
        return chosen

    def _held_back(self, now_s: float) -> bool:
        return self.policy.admission_pause_s is not None and (bool(self.running) or now_s < self._admit_from)

    def _fit(self, sequence: S, tokens: int) -> bool:
        """Whether the request has blocks for so many tokens, which it takes where they are free."""
        held = self._held.get(sequence.seat, 0)
        if (more := blocks(tokens) - held) > 0:
            if self.kv_used + more > self.kv_blocks:
                return False
            self._held[sequence.seat] = held + more
        return True

    def _preempt(self) -> None:
        """Put out whoever came last; it is the first to come in again."""
        sequence = self.running.pop()
        self._leave(sequence)
        sequence.computed = 0
        sequence.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(sequence)

    def _leave(self, sequence: S) -> None:
        self._held.pop(sequence.seat, None)
        self._free_seats.append(sequence.seat)
        sequence.seat = -1


def _left(sequence: Sequence) -> int:
    """Tokens whose keys and values are still to be computed."""
    return sequence.prompt + sequence.generated - sequence.computed


def _decodes(sequence: Sequence) -> bool:
    """All but its last token are in the cache, and that one was generated."""
    return _left(sequence) == 1 and sequence.computed >= sequence.prompt
