#!/usr/bin/env bash
# In a short demo of one model, every prediction is exact. The output ends with one JSON object.
# usage: demo_test.sh KVCAST MODEL [DEMO FLAGS...]
set -euo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

timeout 600 "$1" demo --model "$2" --requests 120 --speed 12 "${@:3}" --json >"$out/json" 2>"$out/err" || {
  cat "$out/err" "$out/json"; exit 1; }
tail -1 "$out/json" | /usr/bin/python3 -c '
import json, sys
report = json.load(sys.stdin)
exact = report["exactness"]
assert report["requests"] == 120, report["requests"]
assert exact["compared"] >= 120 and exact["equal"] == exact["compared"], exact
stream = report["stream"]
assert stream["lost"] == 0 and stream["resets"] == 0, stream
assert report["schemes"] == {"engines": 4, "matched": 4, "unmatched": {}}, \
    [report["schemes"], report["engines"], stream]
assert all(engine["requests"] > 0 for engine in report["engines"]), [report["engines"], stream]
assert set(report["computed_tokens"]) == {"kvcast", "full_only", "round_robin"}
print(report["model"], exact)
'
