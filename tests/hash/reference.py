"""Computes preimages and digests of blocks with Python's own libraries, for the differential test.

Reads one JSON object per line: parent (hex), tokens, keys (null or list of items). Item: {"none":
true}, {"bool": b}, {"int": n}, {"float": hex}, {"bytes": hex}, {"text": hex of UTF-8, "tag": n} or
{"list": [items]}. Equal texts with an equal tag above 0 are one Python object. Equal texts that are
empty or have one character below U+0100 are also one object. Every other text is a separate object.
Prints per line: pickle preimage, its SHA-256, its XXH3-128, CBOR preimage, its SHA-256, its
XXH3-128, in hex; "-" replaces a value that needs a missing package.
SPDX-License-Identifier: Apache-2.0
"""
import hashlib
import json
import pickle
import sys

try:
    import cbor2
except ImportError:
    cbor2 = None
try:
    import xxhash
except ImportError:
    xxhash = None


def value(item, objects):
    if "text" in item:
        raw = bytes.fromhex(item["text"])
        if item["tag"] == 0:
            return raw.decode()
        return objects.setdefault((item["tag"], raw), raw.decode())
    if "list" in item:
        return tuple(value(inner, objects) for inner in item["list"])
    if "bytes" in item:
        return bytes.fromhex(item["bytes"])
    if "float" in item:
        return float.fromhex(item["float"])
    if "int" in item:
        return item["int"]
    return item.get("bool")


def digests(preimage):
    if preimage is None:
        return ["-", "-", "-"]
    xxh3 = xxhash.xxh3_128_digest(preimage).hex() if xxhash else "-"
    return [preimage.hex(), hashlib.sha256(preimage).hexdigest(), xxh3]


for line in sys.stdin:
    block = json.loads(line)
    objects = {}
    keys = block["keys"]
    extra = None if keys is None else tuple(value(item, objects) for item in keys)
    whole = (bytes.fromhex(block["parent"]), tuple(block["tokens"]), extra)
    cbor = cbor2.dumps(whole, canonical=True) if cbor2 else None
    print(*digests(pickle.dumps(whole, protocol=5)), *digests(cbor))
