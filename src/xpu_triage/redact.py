"""Names taken out: hosts, users, addresses and paths become `host-1a2b3c4d`, the same for the same name wherever one
`Redactor` sees it, and with another salt another.

Labels of metrics are kept where they are known to be harmless, and hashed where not (`redact_words`); text is searched
for what looks like a name. Code keeps what a stack is read by: a file below `site-packages`, `dist-packages`, the
standard library or of a known package is named from there on, any other source file by its own name. What is left as
it is: metric names, names of kernels and operators, model names that are no paths, routes of a server, and names of
this machine itself (`localhost`, 127.0.0.1).
"""

from __future__ import annotations

import getpass
import hashlib
import hmac
import os
import re
import secrets
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv6Address, ip_address

from . import redact_words as known
from .redact_hosts import stated

_HIDDEN = known.HIDDEN
_ROUTES = re.compile(r"/(?:v\d+(?:beta)?|metrics|health\w*|ping|version|(?:de)?tokenize|generate\w*"
                     r"|(?:start|stop)_profile|prometheus|api|server_info|get_\w+|openapi\.json|docs|completions?|chat|embeddings|rerank"
                     r"|score|load|info|flush_cache|classify|invocations|none)(?:[/?]|$)")
_TOP = re.compile(r"/(?:proc|dev|sys)(?:/|$)")
_CODE = re.compile(r"^(?:.*[/\\])?(?:((?:site|dist)-packages[/\\].+)|(lib(?:64)?/python\d[\d.]*t?/.+)"
                   r"|(bin/(?:python|pypy|vllm|sglang|py-spy|trtllm|lmdeploy|text-generation|uvicorn|ray)[\w.-]*))$")
_SOURCE = re.compile(r"^[^/\\]*?\.(?:py|pyx|pyi|so(?:\.[\d.]+)?|dll|pyd|c|cc|cpp|cxx|cu|cuh|h|hpp|rs)(?![\w.])")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+|0x[0-9a-fA-F]+|[Ii]nf|[Nn]a[Nn])")
_SMALL = re.compile(r"[+-]?\d{1,7}(?:\.\d{0,9})?|[+-]?(?:Inf|inf|NaN|nan)|0x[0-9a-fA-F]+|\[\]|\d+(?:\.\d+)?%")
_WORD = re.compile(r"[\w.+: ]{0,60}|[A-Za-z_.+-]{0,60}", re.ASCII)

_PART = r"[\w.+@%~$-]+"
_BLANKS = r"(?: [A-Za-z][\w.+-]*){0,3}(?=/(?!(?:s|sec|steps?|tok\w*|req\w*|min|h|it)\b)\w)"
_PATH = re.compile(r"(?:(?<=\\[nrt])|(?<=://)|(?<![\w.+<\\~/]))"
                   rf"(?:~[\w.-]*/{_PART}|/(?!\d[\d.]*[A-Za-z%]{{0,4}}(?![\w./])){_PART})(?:(?:{_BLANKS})?/{_PART})*/?")
"""Not after a letter (`MB/s`), in a closing tag, or a bare number (`61 /350W`). A folder may have blanks in its name,
where the slash after them shows that it is one."""
_INSIDE = r"""[^"'`()\n<>|]{0,400}?"""
_QUOTED = re.compile(rf"""(["'`(])((?:~[\w.-]*/|/|[A-Za-z]:[\\/]|\\\\){_INSIDE}[ \\]{_INSIDE})(?=\\?["'`)])""")
"""What is quoted and begins like a path is one, blanks and all."""
_WINDOWS = re.compile(r"(?<![A-Za-z0-9])(?:[A-Za-z]:(?:\\{1,2}|/(?!/))|(?<!\\)\\{2,4}[A-Za-z0-9][\w.-]*\\{1,2})"
                      r"(?:[\w.+@%~$-]+(?: [\w.+-]+){0,3}(?:\\{1,2}|/))*[\w.+@%~$-]+")
_FRAME = re.compile(r'(?<![^\s("])((?:[\w.+@~-]+/)+)([\w.+-]+\.pyx?)(?=:\d|\(\d|\)|$)', re.MULTILINE)
"""The file of a frame, relative to somewhere."""
_URL = re.compile(r"""(?<=://)(?:([\w.%+~-]+)(?::[^\s@/"']*)?@)?(\[[0-9A-Fa-f:.]+(?:%\w+)?\]|[\w.-]+)"""
                  r"""(:\d+)?(/[^\s"'<>)\]},;|]*)?""")
_AT = re.compile(r"(?<![\w.@/-])([A-Za-z_][\w.+-]*)@([A-Za-z0-9][\w-]*(?:\.[\w-]+)*)(?![\w@(])"
                 r"(:(?!\d+\b)[\w.~-][\w./~-]*)?")
_SYMBOL = re.compile(r"^(?:plt|got|LIBC|GLIBC|GLIBCXX|CXXABI|GCC|GOMP)", re.IGNORECASE)
_KEYED = re.compile(r"""(?<![A-Za-z0-9_-])(?:--?)?([A-Za-z][A-Za-z_-]{1,40})(\\*["']?\s*[:=]\s*\\*)"""
                    r"""(["'])((?:[^"'\\\n]|\\(?!\3)[^\n])*)(?=\\*\3|$)""", re.MULTILINE)
_BARE = re.compile(r"""(?<![\w"'.])(?:--?)?([A-Za-z][A-Za-z_-]{1,40})(=|\s{0,9}[:=]\s{1,9})"""
                   r"""([A-Za-z0-9_][\w.-]*)(?![\w("'])""")
_FLAG = re.compile(r"(?<!\S)--([a-z][a-z_-]{1,30})( )([A-Za-z0-9_][\w.-]*)(?![\w(\"'])")
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)|(?<![\w.-])ip-\d{1,3}(?:-\d{1,3}){3}(?![\w-])")
_IPV6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:)[0-9A-Fa-f:]{2,45}(?:%[\w.-]{1,32})?(?![\w:.])")
_NAME = re.compile(r"(?i)(?<![\w.@/-])(?!\d+\.\d)(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+"
                   rf"(?:{known.TOP_DOMAINS}|{known.NATIONAL})(?![\w.(-])")
_POD = re.compile(r"(?<![\w.@/-])[a-z][a-z0-9-]{1,60}-[0-9a-f]{8,10}-[a-z0-9]{5}(?![\w-])")
_LOGGED = re.compile(r"^((?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT[\d:.]{8,15}(?:Z|[+-]\d\d:?\d\d)) )"
                     r"([A-Za-z0-9][\w.-]{0,80})(?= [\w@./-]{1,60}(?:\[\d+\])?: )", re.MULTILINE)
_BANNER = re.compile(r"^(Linux \S+ \()([^()\n]{1,200})(?=\))", re.MULTILINE)
_TOP_ROW = re.compile(r"^(\s*\d+ )([A-Za-z_][\w.+-]*\$?)(?=\s+(?:rt|-?\d+)\s+-?\d+"
                      r"(?:\s+[\d.,]+[kmgtp]?){3}\s+[A-Z]\s)", re.MULTILINE)
_SAMPLE = re.compile(r'^[ \t]*(?:[a-zA-Z_:][\w:.]*)?\{\s*(?:"[^"\n]*"\s*,\s*)?[a-zA-Z_][\w.]*\s*=\s*"[^\n]*',
                     re.MULTILINE)
_PAIR = re.compile(r'([a-zA-Z_][\w.]*)(\s*=\s*")((?:[^"\\\n]|\\.)*)(?="|$)')

LEAST_LETTERS = 2
"""Of a host's or user's own name, to be looked for as a bare word."""

MAX_LEARNT = 2000
"""Names met in the place of a host's or user's that are looked for as bare words from then on."""

_KINDS = tuple((kind, re.compile(rf"(?:.*_)?{keys}")) for kind, keys in (
    ("host", known.HOST_KEYS), ("user", known.USER_KEYS), ("path", known.PATH_KEYS)))
_SAID = re.compile(known.SAID_KEYS, re.IGNORECASE)
_TELLING = re.compile(r"(?=.*[A-Za-z])(?=.*[\d.-]).{4,80}", re.DOTALL)
_PARTS = re.compile(r"(?=.*[A-Za-z])(?=.*[\d.-]).{5,}", re.DOTALL)
"""A name that no ordinary word is: taken out also where it is a part of a longer one (`job-gpu-a17`)."""


class Redactor:
    """Takes names out of text. What it remembers is names that it has met, so that they are found bare as well."""

    def __init__(self, salt: bytes, names: Iterable[tuple[str, str]] = ()) -> None:
        """`names` are (kind, name) to be found as bare words too: (`host`, `gpu-17`), (`user`, `alice`)."""
        self._salt = salt
        self._bare: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._labels: dict[tuple[str, str], str] = {}
        self.pieces = 1
        """The number of the next piece of evidence that gets another name."""
        self._words: re.Pattern[str] | None = None
        self._alias_words: re.Pattern[str] | None = None
        for kind, name in names:
            if len(name) >= LEAST_LETTERS and not name.isdigit() and name.lower() not in known.COMMON | known.HERE:
                self._bare[name.lower()] = kind
        self._look_for_words()

    def text(self, text: str) -> str:
        """`text` with names taken out. Line ends, numbers and everything else stay where they are."""
        if text in self._aliases:
            return self._aliases[text]
        learnt = len(self._bare)
        if "\n" in text:
            self.learn(stated(text))
        kept, at = [], 0
        if '="' in text or '= "' in text:
            for sample in _SAMPLE.finditer(text):
                kept += [self._free(text[at:sample.start()]), _PAIR.sub(self._pair, sample[0])]
                at = sample.end()
        kept.append(self._free(text[at:]))
        out = "".join(kept)
        if len(self._bare) > learnt:
            self._look_for_words()
        return self._bare_words(out)

    def learn(self, hosts: Iterable[str]) -> None:
        """Look for these names of hosts as bare words from now on, however short they are."""
        before = len(self._bare)
        for name in sorted(hosts):
            if len(self._bare) < MAX_LEARNT:
                self._bare.setdefault(name, "host")
        if len(self._bare) > before:
            self._look_for_words()

    def bare(self, text: str) -> str:
        """`text`, which went through `text` before, without the names that were met since."""
        return self._bare_words(text)

    def label(self, name: str, value: str) -> str:
        """The value of a metric's label: kept where the label is known to be harmless, else hashed."""
        hidden = self._labels.get((name, value))
        if hidden is None:
            hidden = self._labels[name, value] = self._label(name, value)
        return hidden

    def file(self, path: str) -> str:
        """The file of a frame, which may be relative: a package's from the package on, another by its own name."""
        if "/" not in path or path.startswith("<") or _HIDDEN.match(path):
            return path
        if path[0] in "/~":
            return self.text(path)
        return _FRAME.sub(self._frame, path) if _FRAME.fullmatch(path) else self._path(path)

    def alias(self, text: str, other: str) -> None:
        """Write `other` wherever `text` stands: for names that nothing in them tells, such as a file's."""
        if text and text not in self._aliases:
            self._aliases[text] = other
            self._alias_words = None

    def _aliased(self, text: str) -> str:
        if self._alias_words is None:
            found = [re.escape(one) for one in sorted(self._aliases, key=len, reverse=True)
                     if len(one) > 4 and re.search(r"[/\\.]", one)]
            self._alias_words = re.compile(rf"(?<![\w/.-])(?:{'|'.join(found) or '(?!)'})(?![\w-]|\.\w)")
        return self._alias_words.sub(lambda match: self._aliases[match[0]], text)

    def _free(self, text: str) -> str:
        """Text of no known form."""
        if not text or text.isspace():
            return text
        if self._aliases:
            text = self._aliased(text)
        slashes, backslashes = "/" in text, "\\" in text
        if ":" in text or "=" in text:
            text = _KEYED.sub(self._keyed, text)
            text = _BARE.sub(self._said, text)
        if "--" in text:
            text = _FLAG.sub(self._said, text)
        if slashes or backslashes:
            text = _QUOTED.sub(self._quoted, text)
            text = _WINDOWS.sub(lambda match: self._path(match[0]), text)
        if slashes:
            text = _URL.sub(self._url, text)
            text = _PATH.sub(lambda match: self._path(match[0]), text)
            text = _FRAME.sub(self._frame, text)
        if "@" in text:
            text = _AT.sub(self._at, text)
        text = _IPV4.sub(lambda match: self._ip(match[0]), text)
        if "::" in text or text.count(":") > 6:
            text = _IPV6.sub(lambda match: self._ip(match[0]), text)
        for pattern in (_LOGGED, _BANNER):
            text = pattern.sub(lambda match: match[1] + self._host(match[2]), text)
        text = _TOP_ROW.sub(lambda match: match[1] + self._named("user", match[2]), text)
        text = _NAME.sub(self._dotted, text)
        return _POD.sub(lambda match: self._named("host", match[0]), text)

    def _bare_words(self, text: str) -> str:
        if self._words is None:
            return text
        return self._words.sub(lambda match: self._named(self._bare[match[0].lower()], match[0]), text)

    def _look_for_words(self) -> None:
        longest = sorted(self._bare, key=len, reverse=True)
        words = "|".join(map(re.escape, longest))
        inside = "|".join(re.escape(name) for name in longest if _PARTS.fullmatch(name))
        self._words = re.compile(
            rf"(?i)(?<![A-Za-z0-9_.-])(?:{words})(?![A-Za-z0-9_-]|\"\s*:)"
            rf"|(?<![A-Za-z0-9])(?:{inside or '(?!)'})(?![A-Za-z0-9])") if words else None

    def _named(self, kind: str, name: str) -> str:
        if _HIDDEN.fullmatch(name) or name.lower() in known.HERE:
            return name
        # the kind is left out, so that one name is known again where it stands as something else
        digest = hmac.new(self._salt, name.lower().encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
        if kind in ("host", "user") and len(self._bare) < MAX_LEARNT and _TELLING.fullmatch(name):
            lowered = name.lower()
            if lowered not in known.COMMON and not re.fullmatch(r"[a-z]{1,6}[\d.]+|[\d.-]+", lowered):
                self._bare.setdefault(lowered, kind)
        return f"{kind}-{digest[:8]}"

    # --- labels and keys

    def _pair(self, match: re.Match[str]) -> str:
        return match[1] + match[2] + self.label(match[1], match[3])

    def _label(self, name: str, value: str) -> str:
        group = known.group(name)
        if not value or value.lower() in known.HERE or _SMALL.fullmatch(value):
            return value
        if group == "number" and _NUMBER.fullmatch(value):
            return value
        if (group == "word" and _WORD.fullmatch(value)) or group == "device":
            return self._bare_words(self._free(value))
        if group == "model" and not _is_place(value):
            return self._bare_words(self._free(value))
        if group == "route" and _ROUTES.match(value):
            return value
        return self._whole(_kind(name) or "name", value)

    def _keyed(self, match: re.Match[str]) -> str:
        name, _, _, value = match.groups()
        kind = _kind(name)
        if not kind or not value or value.lower() in known.HERE or _SMALL.fullmatch(value) or _ROUTES.match(value):
            return match[0]
        if kind != "path":
            hidden = self._whole(kind, value)
        else:
            hidden = self.file(value) if _is_file(value) and "\\" not in value else value
            if hidden == value and re.match(r"[~/]|[A-Za-z]:[\\/]|\\\\", value):
                hidden = self._path(value)
        return f"{match[0][:match.start(4) - match.start()]}{hidden}"

    def _said(self, match: re.Match[str]) -> str:
        name, equals, value = match.groups()
        kind = _kind(name)
        if kind not in ("host", "user") or (equals not in ("=", " ") and not _SAID.fullmatch(name)):
            return match[0]
        if _SMALL.fullmatch(value) or value.lower() in known.COMMON | known.HERE:
            return match[0]
        return f"{match[0][:match.start(3) - match.start()]}{self._whole(kind, value)}"

    def _whole(self, kind: str, value: str) -> str:
        """All of a value that names something."""
        if _HIDDEN.match(value) and re.fullmatch(rf"{_HIDDEN.pattern}(?:[:/@].*)?", value, re.DOTALL):
            return value
        if "://" in value and (hidden := _URL.sub(self._url, value, count=1)) != value:
            return hidden
        if _is_place(value) or "/" in value:
            return self._path(value)
        name, colon, port = value.rpartition(":")
        if not (colon and port.isdigit() and len(port) <= 5 and ":" not in name.strip("[]")):
            name, colon, port = value, "", ""
        if not _SMALL.fullmatch(name):
            name = self._ip(name) if _is_address(name.strip("[]")) else self._named(kind, name)
        return f"{name}{colon}{port}"

    # --- what stands in text

    def _url(self, match: re.Match[str]) -> str:
        user, host, port, path = match.groups()
        at = f"{self._named('user', user)}@" if user else ""
        if path and path != "/":
            path = path.partition("?")[0] if _ROUTES.match(path) else f"/{self._named('path', path.strip('/'))}"
        return f"{at}{self._host(host)}{port or ''}{path or ''}"

    def _host(self, host: str) -> str:
        return self._ip(host) if _is_address(host.strip("[]")) else self._named("host", host)

    def _dotted(self, match: re.Match[str]) -> str:
        name = match[0]
        labels = name.lower().split(".")
        if re.fullmatch(known.MODULES, labels[0]):
            return name
        if not re.fullmatch(known.TOP_DOMAINS, labels[-1]) and len(labels) < 3 and not re.search(r"[\d-]", labels[0]):
            return name
        return self._named("host", name)

    def _quoted(self, match: re.Match[str]) -> str:
        mark, path = match.groups()
        folder = re.split(r"[/\\](?=[^/\\]*$)", path)[0]
        if " " not in folder and not re.match(r"[A-Za-z]:[\\/]|\\\\", path):
            return match[0]
        return mark + self._path(path)

    def _path(self, path: str) -> str:
        if _ROUTES.match(path) or _TOP.match(path) or path in ("~", "/") or _HIDDEN.match(path):
            return path
        whole, path = path, path.rstrip("/")
        if code := _CODE.match(path):
            kept = code[1] or code[2] or code[3]
            folder = path.removesuffix(kept)
            return f"{self._named('path', folder.rstrip('/')) if folder else '/'}/{kept}".replace("//", "/")
        folder, _, file = re.fullmatch(r"(?s)(?:(.*)([/\\]))?([^/\\]*)", path).groups("")  # type: ignore[union-attr]
        if _SOURCE.match(file):
            return f"{self._named('path', folder)}/{file}" if folder else whole
        return self._named("path", path)

    def _frame(self, match: re.Match[str]) -> str:
        folder, file = match.groups()
        top = folder.partition("/")[0]
        if top in known.PACKAGES or top in sys.stdlib_module_names or _HIDDEN.match(folder) or _CODE.match(match[0]):
            return match[0]
        return f"{self._named('path', folder.rstrip('/'))}/{file}"

    def _at(self, match: re.Match[str]) -> str:
        user, host, path = match.groups()
        if _SYMBOL.match(host):
            return match[0]
        hidden = f":{self._named('path', path[1:])}" if path else ""
        return f"{self._named('user', user)}@{self._host(host)}{hidden}"

    def _ip(self, text: str) -> str:
        bare = text.strip("[]")
        try:
            address = ip_address(bare.removeprefix("ip-").replace("-", ".") if bare.startswith("ip-") else bare)
        except ValueError:
            return text
        if address.is_loopback or address.is_unspecified:
            return text
        if isinstance(address, IPv6Address) and bare.replace(":", "") == "":
            return text
        return self._named("ip", str(address))


@lru_cache(maxsize=1 << 14)
def _kind(key: str) -> str:
    """What a key's value is: `host`, `user`, `path`; empty for any other."""
    key = key.lower().replace("-", "_")
    for kind, pattern in _KINDS:
        if pattern.fullmatch(key):
            return kind
    return ""


def _is_place(value: str) -> bool:
    """Whether a model's name is where it lies."""
    return value[:1] in "/~." or "\\" in value or "://" in value or value.count("/") > 1 or value[1:3] == ":/"


def _is_file(value: str) -> bool:
    return "/" in value and _SOURCE.match(value.rpartition("/")[2]) is not None


def for_this_machine(salt: bytes | None = None) -> Redactor:
    """A redactor with a new salt, which nobody keeps, that knows this host's and user's names."""
    names = []
    host = socket.gethostname()
    names += [("host", host), ("host", host.partition(".")[0])]
    with suppress(KeyError, OSError):  # a user without a name
        names.append(("user", getpass.getuser()))
    names.append(("user", os.path.basename(os.path.expanduser("~"))))
    return Redactor(salt or secrets.token_bytes(16), names)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
