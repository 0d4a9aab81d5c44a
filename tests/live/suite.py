#!/usr/bin/env python3
"""The live suite: runs each case of cases.py with each release of vLLM. `scripts/test --live` calls it.

Exit code: 0, each case has its expected result; 1, a case has another result, or no case matches; 77, a case was
skipped, because a part of the environment is missing, and no case has another result.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import environment  # noqa: E402
from cases import CASES  # noqa: E402

CASE_LIMIT_S = 1800


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--short", action="store_true", help="run the cases that scripts/test runs")
    parser.add_argument("--only", default="", metavar="REGEX", help="run only the cases whose names match")
    parser.add_argument("--vllm", action="append", metavar="VERSION",
                        help="release of vLLM; may be repeated (default: " + " and ".join(environment.versions()) + ")")
    parser.add_argument("--make", action="store_true",
                        help="make the environment if it is missing: 1.3 GB of downloads")
    parser.add_argument("--results", metavar="FILE", help="append one JSON line per run to this file")
    parser.add_argument("--record", metavar="FOLDER", help="write each run as a scenario file into this folder")
    parser.add_argument("--kvcast", default=os.path.join(HERE, "../../build/release/bin/kvcast"))
    parser.add_argument("--list", action="store_true", help="print names and arguments of the cases, and run nothing")
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list:
    versions = options.vllm or environment.versions()
    return [(version, case) for version in versions for case in CASES
            if case.short == options.short and case.runs_on(version)
            and re.search(options.only, case.name)]


def run(version: str, case, options: argparse.Namespace) -> dict:
    command = [sys.executable, os.path.join(HERE, "drive.py"), "--vllm", version,
               "--kvcast", options.kvcast, *case.arguments]
    # A run cannot record the pool of an engine in another process.
    if options.record and not {"--engine-restart", "--ranks"} & set(case.arguments):
        file = f"live-{version}-{case.name}.jsonl.gz"
        command += ["--record", os.path.join(options.record, file)]
    began = time.monotonic()
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=CASE_LIMIT_S)
        status, output, errors = process.returncode, process.stdout, process.stderr
    except subprocess.TimeoutExpired as expired:
        status, output, errors = 2, "", f"the run did not end within {expired.timeout} s"
    result = {}
    lines = output.splitlines()
    if status in (0, 1) and lines and lines[-1].startswith("{"):
        result = json.loads(lines.pop())
    elif status in (0, 1):
        status, errors = 2, "the run printed no result\n" + errors
    return {"case": case.name, "vllm": version, "status": status,
            "right": status == (1 if case.fails else 0), "seconds": round(time.monotonic() - began, 1),
            "result": result, "said": lines, "errors": errors.splitlines()[-30:]}


def line(outcome: dict) -> str:
    text = f"{'ok' if outcome['right'] else 'FAILED':6}  {outcome['vllm']:7} {outcome['case']:26}"
    for name, label in (("sequential", "one at a time"), ("at_lookup", "at the lookup")):
        counts = outcome["result"].get(name, {})
        if counts.get("asked"):
            text += (f"  {label}: {counts['equal']} of {counts['asked']} equal, {counts['over']} over, "
                     f"{counts['under']} under, {counts['exact']} exact")
            if counts["lag"]:
                text += f", {counts['lag']} lag"
    return f"{text}  ({outcome['seconds']} s)"


def main() -> int:
    options = parse()
    todo = chosen(options)
    if not todo:
        print("no case matches --only and --vllm")
        return 1
    if options.list:
        for version, case in todo:
            print(version, case.name, *case.arguments)
        return 0
    needed = list(dict.fromkeys(version for version, _ in todo))
    if options.make:
        subprocess.run([os.path.join(HERE, "setup.sh"), environment.folder(), *needed], check=True)
    for version in needed:
        if why := environment.missing(version):
            environment.skip(why)
    if options.record:
        os.makedirs(options.record, exist_ok=True)
    wrong, skipped = [], 0
    for version, case in todo:
        outcome = run(version, case, options)
        if outcome["status"] == environment.SKIPPED:
            print(f"skipped {version:7} {case.name:26}  " + "; ".join(outcome["said"]), flush=True)
            skipped += 1
            continue
        print(line(outcome), flush=True)
        if options.results:
            with open(options.results, "a", encoding="utf-8") as file:
                file.write(json.dumps(outcome) + "\n")
        if not outcome["right"]:
            wrong.append(f"{version} {case.name}")
            print("\n".join(outcome["said"] + outcome["errors"] * (outcome["status"] == 2)), flush=True)
    ran = len(todo) - skipped
    print(f"{ran - len(wrong)} of {ran} runs have the expected result, {skipped} skipped")
    return 1 if wrong else environment.SKIPPED if skipped else 0


if __name__ == "__main__":
    sys.exit(main())
