#!/usr/bin/env bash
# A fleet of engines with different dialects. The predictions of the index equal each engine's own lookups.
# usage: demo_all_dialects_test.sh KVCAST MODEL
set -euo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

timeout 600 "$1" demo --model "$2" --requests 400 --speed 60 --blocks 3000 --dialect all --json >"$out/json" 2>"$out/err" || {
  cat "$out/err" "$out/json"; exit 1; }
tail -1 "$out/json" | /usr/bin/python3 -c '
import json, sys
report = json.load(sys.stdin)
expected = {"vllm-7", "vllm-8", "vllm-9", "vllm-10", "vllm-11", "vllm-12", "kvcast-1", "trtllm", "mooncake"}
if report["model"] == "full":
    expected |= {f"vllm-{n}" for n in range(1, 7)} | {f"sglang-{n}" for n in range(1, 6)}
dialects = report["dialects"]
assert set(dialects) == expected, set(dialects) ^ expected
for name, dialect in dialects.items():
    assert dialect["compared"] >= 3 and dialect["equal"] == dialect["compared"], (name, dialect)
for name in ("trtllm", "mooncake"):
    assert dialects[name]["reused_tokens"] > 0, (name, dialects[name])
assert report["stream"]["lost"] == 0, report["stream"]
schemes = report["schemes"]
assert schemes["engines"] == len(expected) - 2, schemes
print(report["model"], dialects)
'
# Two engines with small pools. They evict blocks before the blocks are requested again, so removes matter.
blocks=8000
[ "$2" = full ] || blocks=12000
timeout 600 "$1" demo --model "$2" --requests 300 --speed 60 --engines 2 --blocks "$blocks" --dialect trtllm,mooncake \
  --json >"$out/json" 2>"$out/err" || { cat "$out/err" "$out/json"; exit 1; }
tail -1 "$out/json" | /usr/bin/python3 -c '
import json, sys
dialects = json.load(sys.stdin)["dialects"]
# The share of an engine depends on the speed of the machine.
assert sum(dialect["requests"] for dialect in dialects.values()) == 300, dialects
for name in ("trtllm", "mooncake"):
    assert dialects[name]["compared"] >= 30 and dialects[name]["equal"] == dialects[name]["compared"], dialects
'
# A dialect that cannot express the model is refused before the start. `set -e` ignores a command behind `!`.
refuses() {
  if "$@" 2>"$out/err"; then
    echo "not refused: $*" >&2
    exit 1
  fi
}
refuses "$1" demo --model hybrid --dialect trtllm
grep -q "two groups of the model have the same" "$out/err"
refuses "$1" demo --model full --dialect trtllm --cpu-blocks 100
grep -q "one tier of a block" "$out/err"
refuses "$1" demo --model full --dialect all --requests 5
grep -q "at least the number of engines" "$out/err"
