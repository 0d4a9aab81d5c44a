#!/usr/bin/python3
"""Checks the bounds on the size of the libraries' files, functions and classes.

usage: bounds.py SOURCE_DIR
Prints the largest files, functions and classes, and all that exceed their bound.
Exits with 77 if universal-ctags is missing.
SPDX-License-Identifier: Apache-2.0
"""
import collections
import json
import pathlib
import subprocess
import sys

TREES = ("include", "src", "router", "cuda", "python")
MAX_FILE_LINES = 500
# From the line of the name to the closing brace. A lambda counts as part of its function.
MAX_FUNCTION_LINES = 50
# Data members without static constants. The members of a nested class count for that class alone.
MAX_CLASS_MEMBERS = 25
# A plain aggregate: all members are public, and it has no functions.
MAX_AGGREGATE_MEMBERS = 30
SHOWN = 5
SKIPPED = 77
# The annotations of src/base/mutex.h. ctags would read them as names of members and functions.
ANNOTATIONS = ("KV_GUARDED_BY(x)=", "KV_REQUIRES(...)=", "KV_ACQUIRE(...)=", "KV_RELEASE(...)=", "KV_CAPABILITY(x)=",
               "KV_SCOPED_CAPABILITY=", "KV_TRY_ACQUIRE(...)=")


def sources(root):
    for tree in TREES:
        for path in sorted((root / tree).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu", ".cuh") and path.is_file():
                yield path.relative_to(root).as_posix()


def has_ctags():
    try:
        version = subprocess.run(["ctags", "--version"], capture_output=True, text=True)
    except FileNotFoundError:
        return False
    return "Universal Ctags" in version.stdout and "+json" in version.stdout


def read_tags(root, names):
    # ctags' parser for CUDA does not find classes.
    command = ["ctags", "--quiet", "--options=NONE", "--languages=C++", "--map-C++=+.cu", "--map-C++=+.cuh",
               "--kinds-C++=fmp", "--fields=+neKsSa", "--output-format=json", "-o", "-", "-L", "-"]
    for annotation in ANNOTATIONS:
        command += ["-D", annotation]
    done = subprocess.run(command, cwd=root, input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True)
    return [tag for tag in map(json.loads, done.stdout.splitlines()) if tag["_type"] == "tag"]


def function_sizes(tags):
    """Yields (lines, name, bound) of each function."""
    for tag in tags:
        is_lambda = tag["name"].startswith("__anon")
        if tag["kind"] == "function" and not is_lambda:
            name = f'{tag["path"]}:{tag["line"]} {tag.get("scope", "")}::{tag["name"]}'
            yield tag["end"] - tag["line"] + 1, name, MAX_FUNCTION_LINES


def class_sizes(tags, lines):
    """Yields (data members, name, bound) of each class."""
    members = collections.Counter()
    is_class = set()
    for tag in tags:
        owner = (tag["path"], tag.get("scope"))
        if tag["kind"] == "member" and "static const" not in lines[tag["path"]][tag["line"] - 1]:
            members[owner] += 1
        if tag["kind"] in ("function", "prototype") or tag.get("access", "public") != "public":
            is_class.add(owner)
    for (path, scope), count in members.items():
        bound = MAX_CLASS_MEMBERS if (path, scope) in is_class else MAX_AGGREGATE_MEMBERS
        yield count, f"{path} {scope}", bound


def report(kind, unit, sizes):
    """Prints the largest of `sizes`. Returns the violations."""
    sizes = sorted(sizes, reverse=True)
    print(f"{len(sizes)} {kind}; the largest, in {unit}:")
    for size, name, bound in sizes[:SHOWN]:
        print(f"  {size:4} of {bound}  {name}")
    return [f"{name}: {size} {unit}, more than {bound}" for size, name, bound in sizes if size > bound]


def main():
    if not has_ctags():
        print("skipped: universal-ctags is missing (scripts/setup --tests installs it)")
        return SKIPPED
    root = pathlib.Path(sys.argv[1]).resolve()
    lines = {name: (root / name).read_text(encoding="utf-8").splitlines() for name in sources(root)}
    tags = read_tags(root, lines)
    problems = report("files", "lines", [(len(text), name, MAX_FILE_LINES) for name, text in lines.items()])
    problems += report("functions", "lines", function_sizes(tags))
    problems += report("classes with data", "data members", class_sizes(tags, lines))
    print("\n".join(problems))
    print(f"{len(problems)} problems")
    return 1 if problems or not tags else 0


if __name__ == "__main__":
    sys.exit(main())
