"""The job in the terminal: its verdict, one table of ranks, and what is not in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..render import COLOURS, console
from ..text import clean, shorten
from .absent import is_bound, size_of
from .compare import RankRow
from .diagnosis import FleetDiagnosis
from .result import RankResult

SHOWN_LEFT_OUT = 12


def print_fleet(found: FleetDiagnosis, limit: int, out: Console | None = None) -> None:
    """Print the diagnosis, with `limit` ranks in the table: first those that stand out, then the slowest."""
    out = out or console()
    for part in fleet_parts(found, limit):
        out.print(part)


def fleet_parts(found: FleetDiagnosis, limit: int) -> Iterator[RenderableType]:
    """The diagnosis from top to bottom, as things that rich can print."""
    yield _headline(found)
    yield Rule("ranks", align="left", style="dim")
    rows = ordered(found.comparison.rows)
    yield _table(rows[:limit], found.comparison.per)
    if len(rows) > limit:
        yield Text(f"… and {len(rows) - limit:,} more, none of which stands out (--limit shows more, --json all)"
                   if not any(row.remarkable for row in rows[limit:]) else
                   f"… and {len(rows) - limit:,} more (--limit shows more, --json all)", style="dim")
    said = ", ".join(f"{count:,} {name}" for name, count in found.comparison.verdicts.items())
    yield Text(f"by themselves they say: {said}")
    for number, line in enumerate(collectives_said(found)):
        yield Text(line if not number else f"  {line}", style="dim" if number else "")
    left = left_out_said(found)
    if left:
        yield Text("Not compared", style="bold")
        yield from map(_item, left[:SHOWN_LEFT_OUT])
        if len(left) > SHOWN_LEFT_OUT:
            yield _item(f"{len(left) - SHOWN_LEFT_OUT:,} more (--json lists them)")
    notes = [*found.notes, *found.comparison.notes]
    if notes:
        yield Text("Mind", style="bold")
        yield from map(_item, notes)


def ordered(rows: Iterable[RankRow]) -> list[RankRow]:
    """Those that stand out first, late ones before others; then by own time, longest first."""
    return sorted(rows, key=lambda row: (not row.late, not row.remarkable, -(row.own_ms or 0.0)))


def _headline(found: FleetDiagnosis) -> RenderableType:
    verdict = found.verdict
    colour = COLOURS[verdict.level]
    head = Text()
    head.append(str(verdict.level).upper(), style=f"bold {colour}")
    head.append(f"   {clean(verdict.title)}", style="bold")
    body: list[RenderableType] = [head, Text(clean(verdict.summary))]
    if verdict.rank:
        body.append(Text.assemble(("look at: ", "bold"), clean(f"{verdict.rank}, {verdict.evidence}"
                                                if verdict.rank != verdict.evidence else verdict.rank)))
    if verdict.next:
        body.append(Text.assemble(("next: ", "bold"), clean(verdict.next)))
    if verdict.fingerprint:
        body.append(Text.assemble(("page: ", "bold"), f"xpu-triage fingerprints {verdict.fingerprint}"))
    body += [Text(clean(line), style="dim") for line in basis(found)]
    return Panel(Group(*body), border_style=colour)


def basis(found: FleetDiagnosis) -> list[str]:
    """How many ranks the verdict is of, and what shows that they are of one job."""
    comparison = found.comparison
    count = len(comparison.rows)
    what = "rank" if comparison.doubt is None else "capture"
    of_world = f" of a world of {comparison.world_size:,}" if comparison.world_size else ""
    said = f"{count:,} {what}{'s' if count > 1 else ''}{of_world} from {found.given:,} pieces of evidence"
    return [said, comparison.one_job] if comparison.one_job else [said]


def columns(per: str) -> list[str]:
    """Titles of the table, but for what stands out."""
    of = f" ms/{per}" if per else " ms"
    return ["rank", f"own{of}", "× median", f"kernels{of}", "waits ms", "last", "its own verdict"]


def cells(row: RankRow) -> list[str]:
    """What the table says of a rank, after its name: five figures, its own verdict, what stands out."""
    return [_number(row.own_ms), _number(row.own_ratio), _number(row.compute_ms), _number(row.wait_ms),
            "" if row.last_share is None else f"{row.last_share:.0%}", row.result.said, remark(row)]


def _table(rows: Iterable[RankRow], per: str) -> Table:
    table = Table(box=None, pad_edge=False)
    first, *figures, last = columns(per)
    table.add_column(first, no_wrap=True)
    for title in figures:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column(last)
    table.add_column("")
    for row in rows:
        style = "bold red" if row.late else "bold" if row.remarkable else ""
        table.add_row(Text(short(row.result)), *(Text(clean(cell)) for cell in cells(row)), style=style)
    return table


def short(rank: RankResult) -> str:
    """A rank's number, or the end of its evidence's name."""
    return str(rank.rank) if rank.rank is not None else shorten(clean(PurePath(rank.label).name), 24)


def remark(row: RankRow) -> str:
    """What stands out, in a few words."""
    few = f"late in {len(row.only_in)} step{'s' if len(row.only_in) > 1 else ''} only" if row.only_in else ""
    words = [("late" if row.late else ""), few, ("slower kind" if row.slower_kind else ""),
             ("differs" if row.differs else ""),
             (f"waits for {row.waits_for}" if row.waits_for else ""), *row.telemetry]
    return ", ".join(filter(None, words))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}"


def collectives_said(found: FleetDiagnosis) -> list[str]:
    """What the collectives of the group with most waiting cost, then the signals over ranks; nothing without any."""
    groups = found.comparison.groups
    if not groups:
        return []
    worst = max(groups, key=lambda group: group.skew_ms)
    name = f"group {worst.group}" if worst.group else "all of them"
    bound = is_bound(worst, found.comparison.world_size)
    if bound:
        name = f"of {size_of(worst, found.comparison.world_size):,}"
    cost = f"true cost {'at most ' if bound else ''}{worst.cost_ms:,.2f} ms a step, skew {worst.skew_ms:,.2f} ms"
    return [f"collectives matched over {len(worst.ranks):,} ranks ({clean(name)}), {len(worst.step):,} in "
            f"{worst.steps:,} step{'s' if worst.steps > 1 else ''}: {cost}"
            + (f"; groups: {len(groups)}" if len(groups) > 1 else ""),
            *(f"{signal.name} {signal.value:,.4g}  {clean(signal.window)}" for signal in found.comparison.signals)]


def left_out_said(found: FleetDiagnosis) -> list[str]:
    """Evidence that is not compared, each with the reason."""
    return [f"{one.label}: {one.why}" if one.label not in one.why else one.why for one in found.comparison.left_out]


def _item(line: str) -> RenderableType:
    row = Table.grid(padding=(0, 1, 0, 0))
    row.add_column(width=3, justify="right")
    row.add_column()
    row.add_row(Text("·"), Text(clean(line)))
    return row
