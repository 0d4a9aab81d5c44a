#!/usr/bin/python3
"""All cases, tests, scenarios and layouts that docs/engines.md names exist. Scenarios and layouts are checked
only if KVCAST_CONFORMANCE and KVCAST_CONFORMANCE_033 name the whole set of recordings. The page names every
live case, except the cases of the short form and the planted faults.

usage: engines_doc_test.py SOURCE_DIR
SPDX-License-Identifier: Apache-2.0
"""
import json
import os
import pathlib
import re
import sys

import environment
from cases import CASES

COLUMNS = ["engine", "version", "feature", "live", "recorded", "test"]


def recorded() -> set[str] | None:
    """Returns the numbers of scenarios and the names of layouts. None: one of the two variables is unset."""
    names = set()
    for variable in ("KVCAST_CONFORMANCE", "KVCAST_CONFORMANCE_033"):
        folder = os.environ.get(variable)
        if not folder:
            return None
        names |= {path.name.split("-")[0] for path in pathlib.Path(folder, "scenarios").glob("*.jsonl*")}
        with open(os.path.join(folder, "wire", "vectors.jsonl"), encoding="utf-8") as vectors:
            names |= {json.loads(line)["layout"].split(":")[0] for line in vectors}
    return names


def rows(text: str) -> list[list[str]]:
    table = [[cell.strip() for cell in line.strip().strip("|").split("|")]
             for line in text.splitlines() if line.startswith("|")]
    assert table[0] == COLUMNS, table[0]
    return table[2:]


def named(cell: str) -> list[str]:
    return [] if cell == "not" else [name.strip() for name in cell.split(",")]


def problems(root: pathlib.Path) -> list[str]:
    cases = {case.name: case for case in CASES}
    known = recorded()
    errors, shown = [], set()
    for row in rows((root / "docs/engines.md").read_text(encoding="utf-8")):
        if len(row) != len(COLUMNS) or not all(row):
            errors.append(f"{row}: expected {len(COLUMNS)} cells that are not empty")
            continue
        where = " ".join(row[:3])
        for name in named(row[3]):
            shown.add(name)
            if name not in cases:
                errors.append(f"{where}: the live case {name} does not exist")
                continue
            for version in named(row[1]):
                if version not in environment.versions() or not cases[name].runs_on(version):
                    errors.append(f"{where}: {name} does not run on {version}")
        for name in named(row[4]):
            if not re.fullmatch(r"\d\d|(vllm|sglang)-\d+", name) or (known and name not in known):
                errors.append(f"{where}: the recording {name} does not exist")
        errors += [f"{where}: tests/{name} does not exist" for name in named(row[5])
                  if not (root / "tests" / name).is_file()]
    for case in CASES:
        if not case.short and not case.fails and case.name not in shown:
            errors.append(f"no row names the live case {case.name}")
    return errors


def main() -> int:
    errors = problems(pathlib.Path(sys.argv[1]))
    for problem in errors:
        print(f"docs/engines.md: {problem}")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
