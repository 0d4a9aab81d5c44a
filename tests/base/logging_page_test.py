#!/usr/bin/python3
"""docs/logging.md lists the events of src/base/log_event.h, with their levels and the actions of an operator. The code
uses each event.

usage: logging_page_test.py SOURCE_DIR
SPDX-License-Identifier: Apache-2.0
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
HEADER = "src/base/log_event.h"


def code_events(text):
    """Returns constant -> (name, level), and the constants that the array lists."""
    events = {}
    for constant, values in re.findall(r"constexpr LogEvent (k\w+) = \{([^}]*)\}", text):
        name = re.search(r'"(\w+)"', values)[1]
        level = re.search(r"LogLevel::k(\w+)", values)
        events[constant] = (name, level[1].lower() if level else "info")
    array = re.search(r"kLogEvents = \{(.*?)\};", text, re.S)[1]
    return events, re.findall(r"log_events::(k\w+)", array)


def page_rows(text):
    """Returns event -> (levels, cells) of the table."""
    rows = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if re.fullmatch(r"`\w+`", cells[0]) and len(cells) > 1:
            rows[cells[0].strip("`")] = (cells[1].split(" or "), cells)
    return rows


def main():
    problems = []
    events, array = code_events((ROOT / HEADER).read_text(encoding="utf-8"))
    rows = page_rows((ROOT / "docs/logging.md").read_text(encoding="utf-8"))
    if sorted(array) != sorted(events):
        problems.append(f"kLogEvents differs from the constants: {set(array) ^ set(events)}")
    code = "".join(path.read_text(encoding="utf-8") for folder in ("src", "router", "apps")
                   for path in (ROOT / folder).rglob("*.cc"))
    for constant, (name, level) in events.items():
        levels, cells = rows.get(name, ([], []))
        if level not in levels:
            problems.append(f"docs/logging.md does not list {name} with the level {level}")
        if len(cells) != 5 or any(not cell.endswith(".") for cell in cells[3:]):
            problems.append(f"docs/logging.md: {name} needs five cells, the last two with sentences")
        if f"log_events::{constant}" not in code:
            problems.append(f"no code writes {name}")
    problems += [f"docs/logging.md lists {name}, which does not exist" for name in set(rows) - {e[0] for e in events.values()}]
    print("\n".join(problems + [f"{len(events)} events, {len(problems)} problems"]))
    return 1 if problems or not events else 0


sys.exit(main())
