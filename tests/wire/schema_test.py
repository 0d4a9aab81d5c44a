#!/usr/bin/python3
"""Checks that the JSON Schema, the CDDL, the protocol text and the bundled vectors agree.

usage: schema_test.py SOURCE_DIR     (exit 77, "skipped", without python3-jsonschema)
SPDX-License-Identifier: Apache-2.0
"""
import json
import pathlib
import re
import sys

sys.dont_write_bytecode = True
from msgpack_view import json_view  # noqa: E402

try:
    import jsonschema
except ImportError:
    print("skipped: python3-jsonschema is not installed")
    sys.exit(77)

STORED = ("block_hashes parent_block_hash token_ids block_size lora_id medium lora_name extra_keys group_idx "
          "kv_cache_spec_kind kv_cache_spec_sliding_window").split()
SGLANG_STORED = STORED[:6] + ["metadata"]
REMOVED = ["block_hashes", "medium", "group_idx"]

failures = []


def check(condition, text):
    if not condition:
        failures.append(text)


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def fields_on_the_wire(event, sglang):
    """Returns tag and non-nil fields of a map or array event."""
    if isinstance(event, dict):
        fields = dict(event)
        tag = fields.pop("type")
    else:
        names = {"BlockStored": SGLANG_STORED if sglang else STORED, "BlockRemoved": REMOVED,
                 "AllBlocksCleared": []}[event[0]]
        tag, fields = event[0], dict(zip(names, event[1:]))
        check(len(event) - 1 <= len(names), f"event {event[0]} has more elements than its layout")
    return tag, {name: value for name, value in fields.items() if value is not None}


def check_good(record, validator):
    name = record["name"]
    view = json_view(bytes.fromhex(record["hex"]))
    for error in validator.iter_errors(view):
        check(False, f"good {name}: the schema refuses it: {error.message[:200]}")
        return
    decoded = record["decoded"]
    check(view[0] == decoded["ts"], f"good {name}: ts differs from `decoded`")
    check((view[2] if len(view) > 2 else None) == decoded["data_parallel_rank"],
          f"good {name}: rank differs from `decoded`")
    check(len(view[1]) == len(decoded["events"]), f"good {name}: number of events differs from `decoded`")
    for on_wire, event in zip(view[1], decoded["events"]):
        expected = {key: value for key, value in event.items() if key != "type" and value is not None}
        check(fields_on_the_wire(on_wire, name.startswith("sglang")) == (event["type"], expected),
              f"good {name}: an event in the bytes differs from `decoded`")


def check_judged(kind, record, validator):
    name, verdict = record["name"], record["schema"]
    try:
        valid = validator.is_valid(json_view(bytes.fromhex(record["payload"])))
    except (ValueError, RecursionError) as error:
        check(verdict == "cannot_tell", f"{kind} {name}: no JSON view ({error}), but the vector states {verdict}")
        return
    if verdict != "cannot_tell":
        check(valid == (verdict == "accepts"),
              f"{kind} {name}: the schema gives valid = {valid}, but the vector states {verdict}")


def check_names(source, schema):
    """Every field of the schema occurs in the grammar and in the text, and vice versa."""
    cddl = (source / "schemas" / "kv_events.cddl").read_text(encoding="utf-8")
    text = (source / "schemas" / "README.md").read_text(encoding="utf-8")
    for kind, heading in (("stored", "BlockStored"), ("removed", "BlockRemoved")):
        in_schema = set(schema["$defs"][f"{kind}_map"]["properties"])
        body = re.search(rf"^{kind}-map = \{{(.*?)^\}}", cddl, re.S | re.M).group(1)
        in_cddl = set(re.findall(r"^\s*(?:\? )?(\w+):", body, re.M))
        section = re.search(rf"^### Fields of {heading}\n(.*?)^(?:###|AllBlocks)", text, re.S | re.M).group(1)
        in_text = set(re.findall(r"^\| (?:\d+|-) \| (\w+) \|", section, re.M))
        check(in_schema == in_cddl, f"{kind}: schema and CDDL differ in {in_schema ^ in_cddl}")
        check(in_schema - {"type"} == in_text, f"{kind}: schema and text differ in {(in_schema - {'type'}) ^ in_text}")


def check_limits(source, schema):
    """The schema has the limits max_events and max_hashes of WireLimits."""
    header = (source / "include/kvcast/wire/wire.h").read_text(encoding="utf-8")
    limits = {name: int(value) for name, value in re.findall(r"uint32_t (max_\w+) = (\d+);", header)}
    for name, of in (("max_events", "events"), ("max_hashes", "hashes")):
        most = schema["$defs"][of]["maxItems"]
        check(most == limits[name], f"{name}: {limits[name]} in wire.h, {most} in the schema")


def main():
    source = pathlib.Path(sys.argv[1])
    vectors = source / "schemas" / "vectors"
    schema = json.loads((source / "schemas" / "kv_events.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    counts = {}
    for record in lines(vectors / "good.jsonl"):
        check_good(record, validator)
        counts["good"] = counts.get("good", 0) + 1
    for kind in ("tolerated", "rejected"):
        for record in lines(vectors / f"{kind}.jsonl"):
            check_judged(kind, record, validator)
            counts[kind] = counts.get(kind, 0) + 1
    check_names(source, schema)
    check_limits(source, schema)
    text = (vectors / "README.md").read_text(encoding="utf-8")
    for kind, count in counts.items():
        check(f"| `{kind}.jsonl` | {count} |" in text,
              f"vectors/README.md does not state {count} lines of {kind}.jsonl")
    print("\n".join(failures))
    print(f"{counts}, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
