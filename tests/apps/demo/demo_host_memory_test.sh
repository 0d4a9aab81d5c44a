#!/usr/bin/env bash
# A demo has small GPU pools and host memory. Every prediction is exact, including the predicted loads.
# Every checked block holds the right bytes.
# usage: demo_host_memory_test.sh KVCAST eager|lazy|connector [MODEL BLOCKS [ARGUMENT...]]
set -euo pipefail
kvcast=$1; offload=$2; model=${3:-hybrid}; blocks=${4:-12000}
shift $(($# < 4 ? $# : 4))
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

timeout 600 "$kvcast" demo --requests 160 --speed 30 --model "$model" --blocks "$blocks" --cpu-blocks 60000 \
  --offload "$offload" "$@" --json >"$out/json" 2>"$out/err" || { cat "$out/err" "$out/json"; exit 1; }
tail -1 "$out/json" | /usr/bin/python3 -c '
import json, sys
report = json.load(sys.stdin)
exact = report["exactness"]
# The audit compares every admission, also on a busy machine.
assert exact["compared"] >= 130 and exact["equal"] == exact["compared"], exact
assert report["stream"]["lost"] == 0, report["stream"]
# The comparison of policies has no draft tokens.
compared = set() if "--draft-tokens" in sys.argv else {"kvcast", "full_only", "round_robin"}
assert set(report["loaded_tokens"]) == compared, report["loaded_tokens"]
assert report["loaded_tokens"].get("kvcast", 1) > 0, report["loaded_tokens"]
assert bool(report["policies"]) == bool(compared), report["policies"]
loaded = sum(engine["loaded_tokens"] for engine in report["engines"])
assert loaded > 0, report["engines"]
blocks = report["host_blocks"]
assert all(count > 1000 for count in blocks["checked"].values()), blocks
assert not any(blocks["wrong"].values()), blocks
print(exact, loaded, report["loaded_tokens"], blocks)
' "$@"
