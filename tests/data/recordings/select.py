#!/usr/bin/env python3
"""Selects the recordings of this folder from the whole set, or checks the selection against the set.

usage: select.py [--check] WHOLE WHOLE_033
WHOLE and WHOLE_033 are the folders that KVCAST_CONFORMANCE and KVCAST_CONFORMANCE_033 name.
`--check` fails if a file is missing here. It also fails if the lines of a file differ from the first lines
(or all lines) of the file in the whole set.
Rules: README.md, "Selection". SPDX-License-Identifier: Apache-2.0
"""
import gzip
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
# Maximum of compressed bytes of one file, by its folder.
MAX_BYTES = {"scenarios": 100_000, "cpu-manager": 60_000, "scheduler": 60_000, "known-defects": 60_000}
# Complete recordings that are not part of the whole set.
OWN_FOLDERS = {"corners", "manager-calls"}
MAX_PAYLOAD_BYTES = 10_240
# Descriptions, and payloads that the records also contain.
LEFT_OUT = {".md", ".msgpack", ".bin"}
LEFT_OUT_NAMES = {"index.json", "producers.json"}


def packed(lines):
    return gzip.compress(b"".join(lines), 9, mtime=0)


def shortened(lines, max_bytes):
    """Returns `lines`, or as many of the first lines as fit."""
    if len(packed(lines)) <= max_bytes:
        return lines
    fits, too_many = 1, len(lines)
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if len(packed(lines[:middle])) <= max_bytes:
            fits = middle
        else:
            too_many = middle
    return lines[:fits]


def eligible(folder, lines):
    if folder != "wire":
        return lines
    return [line for line in lines if json.loads(line)["bytes"] <= MAX_PAYLOAD_BYTES]


def recordings(whole):
    """Yields (path of the file here, its folder, all lines that it may contain) per recording in `whole`."""
    for path in sorted(whole.rglob("*")):
        if not path.is_file() or path.suffix in LEFT_OUT or path.name in LEFT_OUT_NAMES:
            continue
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        name = path.relative_to(whole).as_posix().removesuffix(".gz") + ".gz"
        yield name, path.parent.name, eligible(path.parent.name, content.splitlines(keepends=True))


def write(target, folder, lines):
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(packed(shortened(lines, MAX_BYTES[folder]) if folder in MAX_BYTES else lines))


def is_selected_from(target, folder, lines):
    if not target.exists():
        return False
    held = gzip.decompress(target.read_bytes()).splitlines(keepends=True)
    may_be_shortened = folder in MAX_BYTES and len(held) > 1
    return held == (lines[:len(held)] if may_be_shortened else lines)


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    wholes = [pathlib.Path(argument) for argument in arguments if argument != "--check"]
    if len(wholes) != 2 or not all(whole.is_dir() for whole in wholes):
        sys.exit(__doc__)
    expected = set()
    different = []
    for release, whole in zip(("until-2026-08", "vllm-0.33"), wholes):
        for name, folder, lines in recordings(whole):
            target = HERE / release / name
            expected.add(target)
            if not check:
                write(target, folder, lines)
            elif not is_selected_from(target, folder, lines):
                different.append(target)
    different += [path for path in HERE.rglob("*.gz") if path not in expected and path.parent.name not in OWN_FOLDERS]
    for path in different:
        print(f"{path.relative_to(HERE)}: not as in the whole set")
    print(f"{len(expected)} files, {sum(path.stat().st_size for path in HERE.rglob('*.gz'))} bytes")
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
