#!/usr/bin/env bash
# The examples do what they say: one engine publishes, a router and a Python tail follow it.
# usage: examples_test.sh BIN_DIR SOURCE_DIR
set -euo pipefail
bin=$1; source=$2
out=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$out"' EXIT

"$bin/engine_publish" 6 >"$out/engine" &
for _ in $(seq 100); do [ -s "$out/engine" ] && break; sleep 0.1; done
read -r endpoint replay <"$out/engine"

timeout 60 /usr/bin/python3 "$source/examples/tail.py" "$endpoint" kv.example 2 >"$out/tail"
grep -q 'BlockStored group 1' "$out/tail"

timeout 60 "$bin/route_request" "$endpoint" "$replay" | tee "$out/route"
grep -qx 'engine can reuse 128 of 150 tokens' "$out/route"
