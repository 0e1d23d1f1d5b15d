"""YAML as plain data, read event by event: mappings, lists and scalars, and nothing else.

Stricter than a safe loader, because a sheet is typed by hand and a rule must mean what it says: a key that
stands twice is an error (YAML lets the last one win), and so are tags, aliases and several documents. Depth
and size are bounded, so that a small file cannot become a large structure.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

try:
    from yaml import CSafeLoader as _Loader
except ImportError:  # a PyYAML built without libyaml: slower, the same events
    from yaml import SafeLoader as _Loader  # type: ignore[assignment]

MAX_DEPTH = 20
MAX_EVENTS = 20_000

_INTEGER = re.compile(r"[-+]?\d+")
_FLOAT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_WORDS: dict[str, bool | float | None] = {
    "": None, "~": None, "null": None,
    "true": True, "yes": True, "on": True, "false": False, "no": False, "off": False,
    ".nan": float("nan"), ".inf": float("inf"), "+.inf": float("inf"), "-.inf": float("-inf"),
}


class BadYaml(ValueError):
    """The text is not the YAML that is read here; the message says what, and on which line."""


def load(text: str, first_line: int = 1) -> Any:
    """The one document in `text` as dicts, lists, str, int, float, bool and None.

    `first_line` is the line number of the text's first line, for messages. Raises `BadYaml`.
    """
    try:
        return _build(text, first_line)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise BadYaml(f"not valid YAML: {error.problem or error.context}{_at(mark, first_line)}") from None
    except yaml.YAMLError as error:
        raise BadYaml(f"not valid YAML: {' '.join(str(error).split())}") from None


def _build(text: str, first_line: int) -> Any:
    root: list[Any] = []
    open_: list[list[Any] | dict[str, Any]] = [root]
    keys: list[str | None] = [None]  # beside each open container: the mapping's key that waits for its value
    for count, event in enumerate(yaml.parse(text, Loader=_Loader)):
        if isinstance(event, yaml.ScalarEvent):
            value: Any = _scalar(event, first_line)
        elif isinstance(event, yaml.MappingStartEvent):
            value = {}
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            open_.pop()
            keys.pop()
            continue
        elif isinstance(event, yaml.AliasEvent):
            raise BadYaml(f"aliases (*{event.anchor}) are not read{_at(event.start_mark, first_line)}")
        else:
            continue
        if count > MAX_EVENTS:
            raise BadYaml(f"more than {MAX_EVENTS:,} values")
        holder = open_[-1]
        if isinstance(holder, list):
            holder.append(value)
        elif keys[-1] is None:
            if not isinstance(event, yaml.ScalarEvent):
                raise BadYaml(f"a key must be plain text{_at(event.start_mark, first_line)}")
            keys[-1] = key = str(event.value)
            if key in holder:
                raise BadYaml(f"{key!r} is given twice{_at(event.start_mark, first_line)}")
            continue
        else:
            holder[keys[-1]] = value
            keys[-1] = None
        if isinstance(value, dict | list):
            if len(open_) > MAX_DEPTH:
                raise BadYaml(f"nested more than {MAX_DEPTH} deep{_at(event.start_mark, first_line)}")
            open_.append(value)
            keys.append(None)
    if len(root) > 1:
        raise BadYaml("more than one document")
    return root[0] if root else None


def _scalar(event: yaml.ScalarEvent, first_line: int) -> str | int | float | bool | None:
    text: str = event.value
    if event.tag is not None and event.tag != "!":
        raise BadYaml(f"tags ({event.tag}) are not read{_at(event.start_mark, first_line)}")
    if event.style or event.tag:
        return text  # quoted, or a block: text, whatever it looks like
    if len(text) < 6 and (word := text.lower()) in _WORDS:
        return _WORDS[word]
    if not text or text[0] not in "+-.0123456789":
        return text
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) < 20 else float(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _at(mark: Any, first_line: int) -> str:
    return "" if mark is None else f" (line {mark.line + first_line})"
