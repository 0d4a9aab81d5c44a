#!/usr/bin/python3
"""Checks rules of style that a program can check, in every C++ and CUDA file of the tree. ARCHITECTURE.md must
name every folder in the root of the tree. A test that a document names must exist.

usage: tidy.py SOURCE_DIR
SPDX-License-Identifier: Apache-2.0
"""
import fnmatch
import pathlib
import re
import sys

FOLDERS = ("include", "src", "router", "cuda", "apps", "tests", "examples", "python")
LIBRARIES = ("include/", "src/base/", "src/event/", "src/wire/", "src/hash/", "src/spec/", "src/engine/",
             "src/event_log/", "src/http/", "src/nats/", "src/offload/", "src/transfer/", "src/residency/", "src/stream/",
             "src/stream_sim/", "router/index/", "router/names/", "router/replica/", "router/rules/", "router/sample/",
             "router/select/", "router/service/", "cuda/")
PRODUCT = ("include/", "src/", "router/", "cuda/", "python/")
MAX_LINES = 800
MAX_COLUMNS = 100
MAX_FUNCTION_LINES = 70
# The number of files with an abstract class. Six of these files belong to the product and the tools, and one
# belongs to the content test. Eight files are interfaces that tests and the simulation implement: the sink, the
# network and the transport of a source, the channel for a publisher's replies, the publisher and the history of a
# relay, a durable log, and the reader of such a log.
MAX_ABSTRACT_CLASSES = 15

BANNED = [  # (where, pattern, why)
    (LIBRARIES, r"\b(printf|fprintf|puts|std::cout|std::cerr)\b", "a library never prints"),
    (LIBRARIES, r"\bsleep_for\b|\busleep\(|\bnanosleep\(", "a library never sleeps"),
    (LIBRARIES, r"\brand\(\)", "the caller passes the source of randomness"),
    (("include/",), r"#include <(absl|boost|zmq|msgpack|nlohmann|simdjson|httplib|openssl|xxhash|prometheus|cuda)",
     "public headers include only the standard library"),
    (PRODUCT, r"\b(steady|system|high_resolution)_clock\b", "only src/base/clock.h may read a clock"),
    (PRODUCT, r"\bstd::(mutex|shared_mutex|condition_variable|lock_guard|unique_lock|scoped_lock)\b",
     "use the locks of src/base/mutex.h: clang checks their annotations"),
    (("include/", "src/", "router/"), r"\b(TODO|FIXME|XXX)\b", "finish it, or document the limit"),
]
ALLOWED = {("src/base/check.cc", "a library never prints"),
           ("src/base/clock.h", "only src/base/clock.h may read a clock"),
           ("src/base/mutex.h", "only src/base/clock.h may read a clock"),  # for a wait with a deadline
           ("src/base/mutex.h", "use the locks of src/base/mutex.h: clang checks their annotations"),
         ("router/index/batch_mutex.h", "use the locks of src/base/mutex.h: clang checks their annotations")}


NO_FUNCTION = r"^(namespace|class|struct|enum|union|extern)\b|.*= \{$"  # the last alternative: a table of values


def functions(lines):
    """Yields (first line, number of lines) of each function whose definition starts in column 0."""
    start = None
    for number, line in enumerate(lines, 1):
        if start is None and re.match(r"^[A-Za-z].*\{$", line) and not re.match(NO_FUNCTION, line):
            start = number
        elif start is not None and line.startswith("}"):
            yield start, number - start + 1
            start = None


def check(root, path, problems):
    name = path.relative_to(root).as_posix()
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if "SPDX-License-Identifier: Apache-2.0" not in text:
        problems.append(f"{name}: the SPDX licence line is missing")
    if len(lines) > MAX_LINES:
        problems.append(f"{name}: {len(lines)} lines, more than {MAX_LINES}")
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS and "http" not in line and '"' not in line and "R\"" not in line:
            problems.append(f"{name}:{number}: {len(line)} columns, more than {MAX_COLUMNS}")
        code = re.sub(r"//.*", "", line)
        for where, pattern, why in BANNED:
            if name.startswith(where) and re.search(pattern, code) and (name, why) not in ALLOWED:
                problems.append(f"{name}:{number}: {why}")
    for start, length in functions(lines):
        if length > MAX_FUNCTION_LINES:
            problems.append(f"{name}:{start}: function of {length} lines, more than {MAX_FUNCTION_LINES}")
    return re.search(r"\bvirtual\b[^;{]*\)\s*(?:const\s*)?(?:noexcept\s*)?= 0;", text) is not None


def tests_of(text):
    """Yields (suite, name) of each test in the text of a source file."""
    yield from re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", text)


def check_documents(root, tests, problems):
    """`tests`: (suite, name) of all tests. A document names a test as `Suite.Name`; * stands for any characters."""
    named = 0
    for path in sorted(root.glob("*.md")) + [p for folder in (*FOLDERS, "docs", "bench")
                                             for p in sorted((root / folder).rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"`([A-Z]\w+\.(?:[A-Z]\w*\*?|\*))`", text):
            named += 1
            if not any(fnmatch.fnmatchcase(f"{suite}.{test}", name) for suite, test in tests):
                problems.append(f"{path.relative_to(root)}: there is no test {name}")
    return named


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    problems, files, abstract, tests = [], 0, [], set()
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu", ".cuh") and path.is_file():
                files += 1
                tests.update(tests_of(path.read_text(encoding="utf-8")))
                if check(root, path, problems):
                    abstract.append(path.name)
    if len(abstract) > MAX_ABSTRACT_CLASSES:
        problems.append(f"{len(abstract)} files with abstract classes, more than {MAX_ABSTRACT_CLASSES}: {abstract}")
    architecture = (root / "ARCHITECTURE.md").read_text(encoding="utf-8")
    for folder in sorted(p.name for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")):
        if folder not in ("build",) and f"`{folder}" not in architecture:
            problems.append(f"ARCHITECTURE.md does not name the folder {folder}")
    named = check_documents(root, tests, problems)
    print("\n".join(problems))
    print(f"{files} files, {named} tests named in documents, {len(problems)} problems")
    return 1 if problems or files == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
