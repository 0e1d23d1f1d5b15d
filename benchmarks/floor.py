"""The least that any reader of a whole trace must do: inflate it (igzip) and parse it as JSON (simdjson)."""

import sys

import simdjson
from isal import isal_zlib

with open(sys.argv[1], "rb") as file:
    raw = isal_zlib.decompress(file.read(), 31)
document = simdjson.Parser().parse(raw)
assert isinstance(document, simdjson.Object)
print(len(document))
