#!/usr/bin/python3
"""Checks that the folders of the source tree do not include each other in a cycle, and that no folder has too many files.

usage: folders.py SOURCE_DIR
Prints the largest folder, and each problem.
SPDX-License-Identifier: Apache-2.0
"""
import collections
import os
import pathlib
import re
import sys

MAX_FOLDER_FILES = 40
TREES = ("include", "src", "router", "cuda", "apps", "tests", "examples", "python")


def sources(root):
    for tree in TREES:
        for path in sorted((root / tree).rglob("*")):
            if path.suffix in (".h", ".cc", ".cu") and path.is_file():
                yield path.relative_to(root).as_posix()


def arrows(root, files):
    """Returns the includes between folders: graph[from folder][to folder] = ["file -> file", ...]."""
    known = set(files)
    graph = collections.defaultdict(lambda: collections.defaultdict(list))
    for name in files:
        for included in re.findall(r'#include "([^"]+)"', (root / name).read_text(encoding="utf-8")):
            for target in (included, "include/" + included):
                if target in known and os.path.dirname(target) != os.path.dirname(name):
                    graph[os.path.dirname(name)][os.path.dirname(target)].append(f"{name} -> {target}")
    return graph


def cycles(graph):
    """Returns the strongly connected components of more than one folder (Tarjan)."""
    index, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        on_stack.add(node)
        for target in graph.get(node, ()):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in on_stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            component = []
            while not component or component[-1] != node:
                component.append(stack.pop())
                on_stack.discard(component[-1])
            if len(component) > 1:
                found.append(sorted(component))

    for node in list(graph):
        if node not in index:
            visit(node)
    return found


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    files = list(sources(root))
    problems = []
    per_folder = collections.Counter(os.path.dirname(name) for name in files)
    for folder, count in per_folder.items():
        if count > MAX_FOLDER_FILES:
            problems.append(f"{folder}: {count} source files, more than {MAX_FOLDER_FILES}")
    graph = arrows(root, files)
    for component in cycles(graph):
        problems.append("a cycle of folders: " + ", ".join(component))
        for folder in component:
            for target in component:
                problems.extend("  " + arrow for arrow in graph[folder].get(target, ())[:5])
    print("\n".join(problems))
    folder, count = per_folder.most_common(1)[0]
    print(f"{len(files)} files in {len(per_folder)} folders; the largest folder is {folder} with {count}; "
          f"{len(problems)} problems")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
