#!/usr/bin/python3
"""docs/options.md lists the commands and flags of the program, with their values, defaults and texts.
The program has all flags that the examples of the documentation use.

usage: options_test.py KVCAST SOURCE_DIR [--write]
--write: replaces the tables of commands and flags in docs/options.md by the tables of the program.
tests/router/service/options_page_test.cc checks the tables of JSON members.
SPDX-License-Identifier: Apache-2.0
"""
import pathlib
import re
import subprocess
import sys

PAGE = "docs/options.md"
COMMANDS = "Commands"  # the heading of the table of commands
FLAG_COLUMNS = ["flag", "value", "default", "meaning"]
COMMAND_COLUMNS = ["command", "meaning"]
EXAMPLES = ("README.md", "SECURITY.md", "docs/*.md", "examples/*.md")
HELP = "`-h`, `--help`"
INDENT = 30  # the width of the left column of --help
KINDS = {"TEXT": "text", "INT": "integer", "UINT": "integer, 0 or more", "FLOAT": "number"}
# An option as version 2 of CLI11 prints it: names, type, bounds, default, and conditions.
OPTION = re.compile(r"(?P<names>[^\s{]+)(?:\{\w+\})?"
                    r"(?: (?P<kind>[A-Z]+)(?::(?P<bounds>\{[^}]*\}|[A-Z]+ in \[[^\]]*\]))?(?:=(?P<default>\S+))?"
                    r"(?P<many> \.\.\.)?(?P<required> REQUIRED)?)?"
                    r"(?: Needs: (?P<needs>\S+))?(?: Excludes: (?P<excludes>\S+))?")


def entries(lines):
    """Yields (name, text) of the lines of one paragraph of --help."""
    for index, line in enumerate(lines):
        if line.startswith(" " * INDENT):
            continue
        if index + 1 < len(lines) and lines[index + 1].startswith(" " * INDENT):
            yield line.strip(), lines[index + 1].strip()
        else:
            yield line[:INDENT].strip(), line[INDENT:].strip()


def read_help(program, command):
    """Returns the paragraphs of `kvcast COMMAND --help` by their titles: title -> [(name, text)]."""
    done = subprocess.run([program, *command, "--help"], capture_output=True, text=True, check=True, timeout=60)
    paragraphs = [block.splitlines() for block in done.stdout.split("\n\n")]
    return {lines[0].rstrip(":"): list(entries(lines[1:])) for lines in paragraphs if len(lines) > 1}


def either(values):
    values = [f"`{value}`" for value in values]
    return " or ".join([", ".join(values[:-1]), values[-1]] if len(values) > 1 else values)


def value_of(option):
    """Returns the text of the column `value`."""
    bounds = option["bounds"] or ""
    parts = [KINDS[option["kind"]]] if option["kind"] else []
    if bounds.startswith("{"):
        parts = [either(bounds.strip("{}").split(","))]
    elif bounds:
        low, high = re.search(r"\[(\S+) - (\S+)\]", bounds).groups()
        parts.append(f"{low} to {high}")
    parts += ["once or more"] if option["many"] else []
    parts += ["required"] if option["required"] else []
    parts += [f"only with `{option['needs']}`"] if option["needs"] else []
    parts += [f"not with `{option['excludes']}`"] if option["excludes"] else []
    return ", ".join(parts)


def row_of(name, text):
    """Returns the row of an option of --help: flag, value, default, meaning."""
    option = OPTION.fullmatch(name)
    assert option, f"cannot read the option {name!r}"
    shown = option["default"] and f"`{option['default'].strip('[]')}`"
    match = re.search(r" \(default: ([^)]*)\)", text)
    assert not (shown and match), f"{name}: two defaults"
    if match:
        text = text.replace(match[0], "")
    flags = ", ".join(f"`{flag}`" for flag in option["names"].split(","))
    return [flags, value_of(option), shown or (match[1] if match else ""), text]


def read_program(program):
    """Returns the tables of the program: heading -> (columns, rows)."""
    commands, tables = [], {}
    pending = [()]
    while pending:
        command = pending.pop(0)
        paragraphs = read_help(program, command)
        name = " ".join(["`kvcast", *command]) + "`"
        rows = [row_of(*entry) for entry in paragraphs.get("Positionals", []) + paragraphs["Options"]]
        assert HELP in [row[0] for row in rows], f"{name} has no --help"
        if command:
            rows = [row for row in rows if row[0] != HELP]
        inner = [(command + (word,), text) for word, text in paragraphs.get("Subcommands", [])]
        commands += [[" ".join(["`kvcast", *words]) + "`", text] for words, text in inner]
        pending[:0] = [words for words, _ in inner]
        if rows:
            tables[name] = (FLAG_COLUMNS, rows)
    return {COMMANDS: (COMMAND_COLUMNS, commands), **tables}


def rows_of(lines):
    """Returns the rows of a table of the page, the head first."""
    cells = [re.split(r"(?<!\\)\|", line.strip()[1:-1]) for line in lines if line.startswith("|")]
    return [[cell.strip().replace("\\|", "|") for cell in row] for row in cells]


def lines_of(columns, rows):
    """Returns a table as lines of the page."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in [columns, *rows]]
    lines = ["".join(f"| {cell} " if cell else "| " for cell in row) + "|" for row in escaped]
    return [lines[0], "|---" * len(columns) + "|", *lines[1:]]


def read_page(text):
    """Returns the page in parts: heading -> its lines."""
    parts, heading = {"": []}, ""
    for line in text.splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ")
            assert heading not in parts, f"the heading {heading} occurs twice"
            parts[heading] = []
        parts[heading].append(line)
    return parts


def write_page(path, tables):
    """Replaces the tables in the page. A new command gets a heading after the heading of the previous command."""
    parts = read_page(path.read_text(encoding="utf-8"))
    before = ""
    for heading, (columns, rows) in tables.items():
        if heading not in parts:
            place = list(parts).index(before) + 1
            parts = dict([*list(parts.items())[:place], (heading, ["## " + heading, "", "|", ""]),
                          *list(parts.items())[place:]])
        lines = parts[heading]
        table_start = next(i for i, line in enumerate(lines) if line.startswith("|"))
        others = [line for line in lines if not line.startswith("|")]
        parts[heading] = others[:table_start] + lines_of(columns, rows) + others[table_start:]
        before = heading
    path.write_text("\n".join(line for lines in parts.values() for line in lines) + "\n", encoding="utf-8")


def differences(heading, columns, rows, shown):
    """Yields the differences between the rows of the program and the table `shown` of the page."""
    if not shown or shown[0] != columns:
        yield f"{heading}: no table with the columns {columns}"
        return
    names = [row[0] for row in shown[2:]]
    yield from (f"{heading}: {name} occurs twice in the page" for name in set(names) if names.count(name) > 1)
    page, program = ({row[0]: row for row in table} for table in (shown[2:], rows))
    yield from (f"{heading}: {name} has no row in the page" for name in program if name not in page)
    yield from (f"{heading}: the program has no {name}" for name in page if name not in program)
    for name in (name for name in program if name in page):
        if len(page[name]) != len(columns):
            yield f"{heading}: {name}: {len(page[name])} cells, not {len(columns)}"
            continue
        for column, on_page, in_program in zip(columns, page[name], program[name]):
            if on_page != in_program:
                yield f"{heading}: {name}: {column}: the page has '{on_page}', the program has '{in_program}'"


def page_problems(text, tables):
    parts = read_page(text)
    found = [f"{heading}: the program has no such command" for heading in parts
             if heading.startswith("`kvcast") and heading not in tables]
    for heading, (columns, rows) in tables.items():
        found += differences(heading, columns, rows, rows_of(parts.get(heading, [])))
    return [f"{PAGE}: {problem}" for problem in found]


def example_problems(root, tables):
    """Yields the unknown flags of examples. An example is the text after `kvcast COMMAND` in a code span or line."""
    known = {heading.strip("`"): set(re.findall(r"--[\w-]+", " ".join(row[0] for row in rows)))
             for heading, (_, rows) in tables.items() if heading != COMMANDS}
    for path in sorted(path for pattern in EXAMPLES for path in root.glob(pattern)):
        text = path.read_text(encoding="utf-8").replace("\\\n", " ")
        for example in re.findall(r"\bkvcast (?:bench )?[a-z]+\b[^`\n|]*", text):
            words = example.split()
            command = " ".join(words[:3] if words[1] == "bench" else words[:2])
            for flag in re.findall(r"(?<!\S)--[a-z][\w-]*", example):
                if command in known and flag != "--help" and flag not in known[command]:
                    yield f"{path.relative_to(root)}: {command} has no {flag}: {example.strip()}"


def main():
    program, root = sys.argv[1], pathlib.Path(sys.argv[2])
    tables = read_program(program)
    page = root / PAGE
    if "--write" in sys.argv[3:]:
        write_page(page, tables)
    problems = page_problems(page.read_text(encoding="utf-8"), tables)
    problems += example_problems(root, tables)
    for problem in problems:
        print(f"FAILED: {problem}")
    flags = sum(len(rows) for heading, (_, rows) in tables.items() if heading != COMMANDS)
    print(f"{flags} flags of {len(tables) - 1} commands, {len(problems)} problems")
    return 1 if problems or not flags else 0


if __name__ == "__main__":
    sys.exit(main())
