"""The job as one HTML page that needs nothing outside: no script, no font, no image from elsewhere.

Written by hand and not through a notebook: it is one panel, one picture and one table. The policy in the head makes the
browser hold to it whatever a name in the evidence contains.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from .. import __version__
from ..report import write_whole
from ..text import clean
from ..verdict import Level
from .compare import RankRow
from .diagnosis import FleetDiagnosis
from .plot import ranks
from .render import basis, cells, collectives_said, columns, left_out_said, ordered, short

MOST_ROWS = 2_000
"""Ranks in the page's table; the JSON has all."""
COLOURS = {Level.CONFIRMED: "#b42318", Level.PROBABLE: "#b54708", Level.NOT_ENOUGH: "#175cd3"}

_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'; \
base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{title}</title>
<style>
  body {{ margin: 0; background: #f3f4f7; color: #1b1f24; font: 15px/1.5 system-ui, sans-serif; }}
  main {{ max-width: 1140px; margin: 0 auto; padding: 18px 28px 60px; background: #ffffff; }}
  h1 {{ font-size: 24px; margin: 6px 0 2px; }}
  h2 {{ font-size: 19px; margin: 34px 0 4px; padding-top: 14px; border-top: 1px solid #e1e4ea; }}
  p {{ margin: 4px 0; overflow-wrap: anywhere; }}
  img {{ display: block; max-width: 100%; height: auto; margin: 12px 0; }}
  .verdict {{ border-left: 6px solid {colour}; padding: 2px 0 4px 16px; }}
  .level {{ color: {colour}; font-weight: 700; }}
  .dim, footer {{ color: #6b7380; font-size: 13px; }}
  .wide {{ overflow-x: auto; }}
  table {{ border-collapse: collapse; font-size: 14px; }}
  th, td {{ padding: 2px 16px 2px 0; text-align: left; vertical-align: top; }}
  th.n, td.n {{ text-align: right; font-variant-numeric: tabular-nums; }}
  tr.late td {{ color: #b42318; font-weight: 700; }}
  tr.stands td {{ font-weight: 700; }}
  li {{ overflow-wrap: anywhere; }}
  footer {{ margin-top: 40px; border-top: 1px solid #e1e4ea; padding-top: 8px; }}
  @media print {{ body {{ background: #ffffff; }} img, tr {{ break-inside: avoid; }} }}
</style>
</head>
<body>
<main>
"""


def write_page(found: FleetDiagnosis, out: Path) -> None:
    """Write `page` to `out`, whole or not at all. Raises MissingExtra without matplotlib, UnusableInput where `out`
    cannot be written."""
    write_whole(out, page(found))


def page(found: FleetDiagnosis) -> str:
    """The verdict, all ranks in one picture, the table of ranks, what the collectives cost and what is not compared."""
    verdict, comparison = found.verdict, found.comparison
    head = _HEAD.format(title=_text(f"xpu-triage fleet: {verdict.title}"), colour=COLOURS[verdict.level])
    said = ", ".join(f"{count:,} {name}" for name, count in comparison.verdicts.items())
    notes = [*found.notes, *comparison.notes]
    return "".join([
        head, _verdict(found), _picture(found), "<h2>Ranks</h2>\n", _table(ordered(comparison.rows), comparison.per),
        f"<p>By themselves they say: {_text(said)}</p>\n",
        _section("Collectives", collectives_said(found)), _section("Not compared", left_out_said(found)),
        _section("Mind", notes), f"<footer>xpu-triage {__version__}</footer>\n</main>\n</body>\n</html>\n"])


def _verdict(found: FleetDiagnosis) -> str:
    verdict = found.verdict
    lines = [f'<h1><span class="level">{_text(str(verdict.level).upper())}</span> {_text(verdict.title)}</h1>',
             f"<p>{_text(verdict.summary)}</p>"]
    if verdict.rank:
        place = verdict.rank if verdict.rank == verdict.evidence else f"{verdict.rank}, {verdict.evidence}"
        lines.append(f"<p><b>look at:</b> {_text(place)}</p>")
    if verdict.next:
        lines.append(f"<p><b>next:</b> {_text(verdict.next)}</p>")
    if verdict.fingerprint:
        lines.append(f"<p><b>page:</b> <code>xpu-triage fingerprints {_text(verdict.fingerprint)}</code></p>")
    lines += [f'<p class="dim">{_text(line)}</p>' for line in basis(found)]
    return '<div class="verdict">\n' + "\n".join(lines) + "\n</div>\n"


def _picture(found: FleetDiagnosis) -> str:
    drawn = ranks(found)
    about = _text(f"{drawn.title}. {drawn.subtitle}")
    return f'<img alt="{about}" src="data:image/png;base64,{b64encode(drawn.png).decode()}">\n'


def _table(rows: Sequence[RankRow], per: str) -> str:
    titles = [*columns(per), "what stands out", "evidence"]
    number = [False, *[True] * 5, False, False, False]
    lines = ["<tr>" + _cells("th", titles, number) + "</tr>"]
    for row in rows[:MOST_ROWS]:
        kind = ' class="late"' if row.late else ' class="stands"' if row.remarkable else ""
        lines.append(f"<tr{kind}>" + _cells("td", [short(row.result), *cells(row), row.result.label], number) + "</tr>")
    more = f'<p class="dim">{len(rows) - MOST_ROWS:,} more (--json has all)</p>\n' if len(rows) > MOST_ROWS else ""
    return '<div class="wide"><table>\n' + "\n".join(lines) + f"\n</table></div>\n{more}"


def _cells(tag: str, texts: Iterable[str], number: Sequence[bool]) -> str:
    return "".join(f'<{tag}{" class=n" if right else ""}>{_text(text)}</{tag}>'
                   for text, right in zip(texts, number, strict=True))


def _section(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return f"<h2>{title}</h2>\n<ul>\n" + "\n".join(f"<li>{_text(line)}</li>" for line in lines) + "\n</ul>\n"


def _text(words: str) -> str:
    return escape(clean(words), quote=True)
