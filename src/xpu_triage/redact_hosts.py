"""Host names that evidence states in a place of its own: a label, a key, a column, a banner, the beginning of a log's
line. Whatever stands there is a host's name however short and plain it is, and free text elsewhere in the same evidence
may say it without any sign of it. Pure: text in, names out.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from ipaddress import ip_address

from . import redact_words as known

_HOST = r"(?:[a-z]{2,20}_){0,3}(?:host|host_?name|nodename|fqdn|server_?name|machine|master_addr|head_node)"
_KEYS = rf"(?:{_HOST}|(?:[a-z]{{2,20}}_){{0,3}}(?:node_?name|node|instance))"
"""With an equals sign. Before a colon a node may be one of a graph, and its name an operator's."""
_VALUE = r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}"
_PLACES = tuple(re.compile(pattern, re.MULTILINE | re.IGNORECASE) for pattern in (
    rf"""(?<![A-Za-z0-9_-]){_KEYS}\s{{0,4}}=\s{{0,4}}\\?["'](?:\w+://)?({_VALUE})(?::\d+)?\\?["']""",
    rf"""(?<![A-Za-z0-9_-]){_HOST}\\?["']\s{{0,4}}:\s{{0,4}}\\?["'](?:\w+://)?({_VALUE})(?::\d+)?\\?["']""",
    rf"(?<![A-Za-z0-9_.-]){_KEYS}=({_VALUE})(?::\d+)?(?=[\s,;)\]]|$)",
    rf"^[ \t]*{_HOST}[ \t]*:[ \t]*({_VALUE})[ \t\r]*$",
    rf"(?<!\S)--(?:host|host-?name|node-?name|master-addr)[ =]({_VALUE})(?=\s|$)",
    rf"<(?:host|node)_?name>\s*({_VALUE})\s*</",
    rf"(?<=://)({_VALUE})(?::\d+)?(?=[/\s\"']|$)",
    rf"^(?:[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d|\d{{4}}-\d\d-\d\dT[\d:.]{{8,15}}(?:Z|[+-]\d\d:?\d\d)) ({_VALUE})"
    r"(?= [\w@./-]{1,60}(?:\[\d+\])?: )",
    rf"^Linux \S{{1,80}} \(({_VALUE})\)",
    rf"^Linux ({_VALUE}) \d+\.\d+\S* #",
    rf"(?<![\w.@/-])[a-z_][\w.+-]{{0,40}}@({_VALUE})(?=:[~/]|[#$%> ]|$)",
))
"""The last: a prompt, as pasted with what was typed after it."""
_COLUMNS = re.compile(r"(?i)(?:host|node)_?name")
_EVIDENCE = re.compile(
    r"(?:gpu|cuda|npu|xpu|hpu|mlu|dcu|rank|card|chip|die|cpu|core|numa|tp|pp|dp|ep|device|worker|engine|stream|thread)"
    r"[_-]?(?:\d|1[0-5])|(?:fp|bf|int|uint|float|sm|gfx|cp|py|python|cu)_?\d+\w*|[abhlptv]\d{1,3}[a-z]?|mi\d{3}x?")
"""What evidence calls its devices, types and models: a host that is called so is not looked for in text."""
_DOMAIN = re.compile(rf"(?i).+\.(?:{known.TOP_DOMAINS}|{known.NATIONAL})")
_PUBLIC = re.compile(r"(?i).+\.(?:com|net|org|io|ai|dev|co|edu|gov)")


def stated(text: str) -> frozenset[str]:
    """The names, in lower case; of one with a domain also what stands before the first dot. Never an address, a number,
    a word of evidence itself, or this machine's `localhost`."""
    found: set[str] = set()
    for place in _PLACES:
        for match in place.finditer(text):
            found.update(_names(match[1], in_url=match.start(1) > 2 and text[match.start(1) - 3:match.start(1)] == "://"))
    for value in _column(text):
        found.update(_names(value))
    return frozenset(found)


def _names(value: str, *, in_url: bool = False) -> Iterator[str]:
    name = value.strip(".-").lower()
    if _is_address(name) or (in_url and _PUBLIC.fullmatch(name)):  # a page that a line refers to
        return
    if _DOMAIN.fullmatch(name):
        yield from filter(_is_telling, (name, name.partition(".")[0]))
    elif "." not in name:
        yield from filter(_is_telling, (name,))


def _is_telling(name: str) -> bool:
    return (len(name) > 1 and any(letter.isalpha() for letter in name) and name not in known.COMMON | known.HERE
            and not _EVIDENCE.fullmatch(name) and not known.HIDDEN.fullmatch(name))


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _column(text: str) -> Iterator[str]:
    """The cells of a table with commas under a heading that says host name."""
    rows = iter(text.splitlines())
    at: int | None = None
    for row in rows:
        if at is None and (row.count(",") < 1 or _COLUMNS.search(row) is None):
            continue
        cells = _cells(row)
        if at is None:
            at = next((i for i, cell in enumerate(cells) if _COLUMNS.fullmatch(cell)), None)
        elif at < len(cells) and re.fullmatch(_VALUE, cells[at]):
            yield cells[at]


def _cells(row: str) -> list[str]:
    parts: Iterable[list[str]] = csv.reader([row.replace("\0", "").replace('"', "")[:20_000]], skipinitialspace=True)
    return [cell.strip() for cell in next(iter(parts), [])]
