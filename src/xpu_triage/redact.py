"""Names taken out: hosts, users, addresses and paths become `host-1a2b3c4d`, the same for the same name wherever one
`Redactor` sees it, and with another salt another.

Code keeps what a stack is read by: a file below `site-packages`, `dist-packages` or the standard library is named from
there on, any other source file by its own name. What is left as it is: metric names, model names that are no paths,
routes of a server, and names of this machine itself (`localhost`, 127.0.0.1).
"""

from __future__ import annotations

import getpass
import hashlib
import hmac
import re
import secrets
import socket
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address

_ROUTES = re.compile(r"/(?:v\d+(?:beta)?|metrics|health\w*|ping|version|generate\w*|(?:start|stop)_profile|prometheus"
                     r"|api|server_info|get_\w+|openapi\.json|docs)(?:/|$)")
_TOP = re.compile(r"/(?:proc|dev|sys)/")
_CODE = re.compile(r"(?:^|.*/)((?:site|dist)-packages/.+)$|(?:^|.*/)(lib(?:64)?/python\d[\d.]*/.+)$")
_SOURCE = re.compile(r"\.(?:py|pyx|pyi|so(?:\.[\d.]+)?|c|cc|cpp|cxx|cu|cuh|h|hpp|rs)$")

_PART = r"[\w.+@%~-]+"
_PATH = re.compile(r"(?:(?<=\\[nrt])|(?<=://)|(?<![\w.+<\\~/]))"
                   rf"(?:~[\w.-]*/{_PART}|/(?!\d[\d.]*[A-Za-z%]{{0,4}}(?![\w./])){_PART})(?:/{_PART})*/?")
"""Not after a letter (`MB/s`), in a closing tag, or a bare number (`61 /350W`)."""
_URL = re.compile(r"(?<=://)(?:([\w.%+~-]+)(?::[^\s@/\"']*)?@)?(\[[0-9A-Fa-f:.]+\]|[\w.-]+)")
_AT = re.compile(r"(?<![\w.@/-])([A-Za-z_][\w.+-]*)@([A-Za-z0-9][\w-]*(?:\.[\w-]+)*)(?![\w@(])")
_SYMBOL = re.compile(r"^(?:plt|got|LIBC|GLIBC|GLIBCXX|CXXABI|GCC|GOMP)", re.IGNORECASE)
_KEYS = (r"(?:exported_)?(?:hosts?|host_?name|instance|node|node_?name|node_?ip|pod|pod_?name|pod_?ip|machine|fqdn"
         r"|server_name)")
_USERS = r"(?:user|user_?name|login|owner)"
_LABEL = re.compile(rf"(?i)(?<![A-Za-z])(?:({_KEYS})|({_USERS}))(\"?\s*[:=]\s*)(\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*')")
_BARE = re.compile(r"(?i)(?<![\w\"'])((?:host_?name|nodename|fqdn)\s*[:=]\s*)([A-Za-z0-9][\w.-]*)")
_IPV4 = re.compile(r"(?<![\w.-])(?:\d{1,3}\.){3}\d{1,3}(?![\w-]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?=[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:)[0-9A-Fa-f:]{2,45}(?![\w:.])")
_NAME = re.compile(r"(?<![\w.@/-])(?:[A-Za-z0-9](?:[\w-]*[A-Za-z0-9])?\.)+"
                   r"(?:local|localdomain|internal|intranet|corp|lan|svc|com|net|org|edu|cn)(?![\w.(-])")

_HERE = frozenset(("localhost", "localhost.localdomain", "ip6-localhost", "", "*", "-", "n/a", "none", "unknown"))
_COMMON = frozenset((
    "root", "user", "admin", "python", "python3", "vllm", "sglang", "server", "worker", "engine", "node", "host",
    "model", "nvidia", "device", "process", "triton", "torch", "trtllm", "lmdeploy", "main", "metrics"))
"""Words of evidence itself, which cannot be taken out because some machine is called so."""

LEAST_LETTERS = 4
"""Of a host's or user's own name, to be looked for as a bare word."""


class Redactor:
    """Takes names out of text. Pure but for what it remembers of its own output, so that nothing is taken out twice."""

    def __init__(self, salt: bytes, names: Iterable[tuple[str, str]] = ()) -> None:
        """`names` are (kind, name) to be found as bare words too: (`host`, `gpu-17`), (`user`, `alice`)."""
        self._salt = salt
        self._ours: set[str] = set()
        known = {name.lower(): kind for kind, name in names
                 if len(name) >= LEAST_LETTERS and name.lower() not in _COMMON | _HERE}
        self._known = known
        words = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
        self._words = re.compile(rf"(?i)(?<![A-Za-z0-9_])(?:{words})(?![A-Za-z0-9_])") if known else None

    def text(self, text: str) -> str:
        """`text` with names taken out. Line ends, numbers and everything else stay where they are."""
        if "/" in text or "~" in text:
            text = _URL.sub(self._url, text)
            text = _PATH.sub(self._path, text)
        text = _LABEL.sub(self._label, text)
        text = _BARE.sub(lambda match: match[1] + self._host(match[2]), text)
        if "@" in text:
            text = _AT.sub(self._at, text)
        text = _IPV4.sub(self._address, text)
        if "::" in text or text.count(":") > 6:
            text = _IPV6.sub(self._address, text)
        text = _NAME.sub(lambda match: self._named("host", match[0]), text)
        if self._words is not None:
            text = self._words.sub(lambda match: self._named(self._known[match[0].lower()], match[0]), text)
        return text

    def _named(self, kind: str, name: str) -> str:
        if name in self._ours or name.lower() in _HERE:
            return name
        digest = hmac.new(self._salt, f"{kind}:{name.lower()}".encode("utf-8", "surrogatepass"), hashlib.sha256)
        hidden = f"{kind}-{digest.hexdigest()[:8]}"
        self._ours.add(hidden)
        return hidden

    def _url(self, match: re.Match[str]) -> str:
        user = f"{self._named('user', match[1])}@" if match[1] else ""
        return user + self._host(match[2])

    def _host(self, host: str) -> str:
        if _is_address(host.strip("[]")):
            return self._ip(host)
        return self._named("host", host)

    def _path(self, match: re.Match[str]) -> str:
        path = match[0]
        if _ROUTES.match(path) or _TOP.match(path) or path == "~":
            return path
        whole, path = path, path.rstrip("/")
        code = _CODE.match(path)
        if code is not None:
            kept = code[1] or code[2]
            return f"{self._named('path', path.removesuffix(kept))}/{kept}"
        folder, _, file = path.rpartition("/")
        if _SOURCE.search(file):
            return f"{self._named('path', folder)}/{file}" if folder else whole
        return self._named("path", path)

    def _label(self, match: re.Match[str]) -> str:
        host, user, equals, quoted = match.groups()
        mark, value = quoted[0], quoted[1:-1]
        name, colon, port = value.rpartition(":")
        if not (colon and port.isdigit() and len(port) <= 5):
            name, colon, port = value, "", ""
        if not name or _is_address(name.strip("[]")):
            return f"{host or user}{equals}{mark}{self._ip(name) if name else ''}{colon}{port}{mark}"
        return f"{host or user}{equals}{mark}{self._named('user' if user else 'host', name)}{colon}{port}{mark}"

    def _at(self, match: re.Match[str]) -> str:
        user, host = match[1], match[2]
        if _SYMBOL.match(host) or user in self._ours:
            return match[0]
        return f"{self._named('user', user)}@{self._host(host)}"

    def _address(self, match: re.Match[str]) -> str:
        return self._ip(match[0])

    def _ip(self, text: str) -> str:
        try:
            address = ip_address(text.strip("[]"))
        except ValueError:
            return text
        if address.is_loopback or address.is_unspecified:
            return text
        if isinstance(address, IPv6Address) and text.strip("[]").replace(":", "") == "":
            return text
        return self._named("ip", str(address))


def for_this_machine() -> Redactor:
    """A redactor with a new salt, which nobody keeps, that knows this host's and user's names."""
    names = []
    host = socket.gethostname()
    names += [("host", host), ("host", host.partition(".")[0])]
    with suppress(KeyError, OSError):  # a user without a name
        names.append(("user", getpass.getuser()))
    return Redactor(secrets.token_bytes(16), names)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
