#!/usr/bin/env bash
# `kvcast conformance router --mode MODE` over the recorded data: never above the engine's own hit,
# below it only for a reason: in mode token behind a block that no event names (the entries inside a
# block of partial hits); in mode token-events also where it is not told which blocks a store names.
# usage: conformance_token_test.sh KVCAST MODE FOLDER     (exit 77, "skipped", without the folder)
set -euo pipefail
if [ ! -d "${3:-}" ]; then
  echo "skipped: no recorded data (set KVCAST_CONFORMANCE)"
  exit 77
fi
"$1" conformance router "$3" --mode "$2" --json | tee /dev/stderr | tail -1 | /usr/bin/python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["compared"] > 0 and report["above"] == 0, report
assert report["unsupported"] == 0, report
reasons, files = {
    "token": ({"unknown_parent"}, ["partial-hits"]),
    "token-events": ({"unknown_parent", "sparse"}, ["partial-hits", "mixed-block-sizes"]),
}[sys.argv[1]]
assert set(report["below"]) <= reasons, report
assert report["equal"] + sum(report["below"].values()) == report["compared"], report
for line in report["first_differences"]:
    assert any(name in line for name in files), line
' "$2"
