#!/usr/bin/env bash
# The command line reports errors as documented: exit code 2 for wrong usage, exit code 1 for a failure,
# and one line on stderr. `kvcast bench service` gets an answer to each request. A demo leaves no process if
# one of its engines is killed, or if the demo is interrupted.
# usage: cli_test.sh KVCAST SOURCE_DIR
set -uo pipefail
kvcast=$1; source=$2
out=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$out"' EXIT
failures=0

fail() { echo "FAILED: $1"; sed 's/^/  | /' "$out/err"; failures=$((failures + 1)); }

# expect CODE TEXT COMMAND...: exit code CODE and exactly one line on stderr, which contains TEXT.
expect() {
  local code=$1 text=$2; shift 2
  timeout 60 "$@" >"$out/out" 2>"$out/err"
  local got=$?
  [ $got = "$code" ] || fail "$*: exit code $got, not $code"
  [ "$(wc -l <"$out/err")" = 1 ] || fail "$*: $(wc -l <"$out/err") lines on stderr, not 1"
  grep -qF -- "$text" "$out/err" || fail "$*: stderr does not contain '$text'"
}

expect 2 'unknown' "$kvcast" demo --model nothing
expect 2 '--nonsense' "$kvcast" demo --nonsense
expect 2 'subcommand' "$kvcast"
expect 2 '--engines' "$kvcast" demo --engines 0
expect 2 '--blocks' "$kvcast" demo --blocks 1
expect 2 '--retention' "$kvcast" demo --retention sometimes
expect 2 '--hash-algo' "$kvcast" engine --hash-algo md5
expect 2 '--offload' "$kvcast" engine --offload sometimes --cpu-blocks 100
expect 2 '--cpu-blocks' "$kvcast" engine --offload connector
expect 2 '--cpu-blocks' "$kvcast" demo --offload connector
expect 2 '--offload lazy: requires --cpu-blocks' "$kvcast" engine --offload lazy
expect 2 '--blocks-per-chunk: requires' "$kvcast" engine --blocks-per-chunk 8
expect 2 '--count' "$kvcast" tail --count -1
expect 2 '--serve: 0.0.0.0 is not loopback' "$kvcast" demo --serve 0.0.0.0:0
expect 2 '--blocks-per-chunk' "$kvcast" engine --cpu-blocks 100 --blocks-per-chunk 0
expect 2 '--blocks-per-chunk' "$kvcast" demo --cpu-blocks 100 --load-rate 1000 --blocks-per-chunk 2
expect 2 '--dialect' "$kvcast" engine --dialect klingon
expect 2 'klingon' "$kvcast" demo --model full --dialect map,klingon
expect 2 'group_idx' "$kvcast" demo --model hybrid --dialect map,sglang
expect 1 '/nonexistent/trace' "$kvcast" demo --trace /nonexistent/trace
expect 1 ':1: not a JSON object' "$kvcast" demo --trace "$source/README.md"
expect 1 'is a folder' "$kvcast" engine --trace "$source" --endpoint tcp://127.0.0.1:0 --replay-endpoint ''
expect 1 '/nonexistent' "$kvcast" conformance wire /nonexistent
expect 2 'class' "$kvcast" conformance
ln "$kvcast" "$out/kvcast" 2>/dev/null || cp "$kvcast" "$out/kvcast"
expect 1 "cannot run $out/kvcast-dev: No such file or directory" "$out/kvcast" sim --seeds 1..2
expect 2 'source' "$kvcast" router --http 127.0.0.1:0 --source nonsense
expect 2 'http: 0.0.0.0 is not loopback' "$kvcast" router --http 0.0.0.0:0
expect 2 'relay: tcp://*:0 is not loopback' "$kvcast" router --http 127.0.0.1:0 --relay 'tcp://*:0'

# --device cuda needs --cpu-blocks. If CUDA does not run here, one line gives the reason.
expect 2 '--cpu-blocks' "$kvcast" engine --device cuda --endpoint tcp://127.0.0.1:0 --replay-endpoint ''
if ! "$kvcast" bench copy --list | grep -q '^cuda *runs here'; then
  "$kvcast" bench copy --list | grep -q 'the host backend is used' || fail 'bench copy --list: no reason'
  expect 1 '--device cuda' "$kvcast" bench copy --device cuda
  expect 1 '--device cuda' "$kvcast" engine --device cuda --cpu-blocks 100 --load-rate 1000 \
    --endpoint tcp://127.0.0.1:0 --replay-endpoint ''
fi

# The service runs under load, with observers that do not read. The test sets no bound for a measured time.
"$kvcast" bench service --seconds 1 --rate 100 --block-ops 5000 --workers 2 --blocks 40 --connections 4 \
  --observers 2 --json >"$out/service" 2>"$out/err" || fail 'bench service'
tail -1 "$out/service" | /usr/bin/python3 -c '
import json, sys
report = json.load(sys.stdin)
assert [p["phase"] for p in report["phases"]] == ["alone", "observed"], report
for phase in report["phases"]:
    assert phase["answered"] == phase["offered"] == 100 and phase["failed"] == 0, phase
    assert 0 < phase["call_mean_s"] < phase["latency_mean_s"], phase
' || fail 'bench service --json'

# If an endpoint is in use, the error of the second engine names the endpoint.
"$kvcast" engine --endpoint tcp://127.0.0.1:0 --replay-endpoint '' --requests 50 --speed 0.01 \
  >/dev/null 2>"$out/first" &
first=$!
for _ in $(seq 600); do grep -q 'stream_listening' "$out/first" && break; sleep 0.1; done
endpoint=$(sed -n 's/.*stream_listening stream=engine address=\(tcp:[^ ]*\) .*/\1/p' "$out/first")
expect 1 "$endpoint" "$kvcast" engine --endpoint "$endpoint" --replay-endpoint '' --requests 1
kill $first; wait $first 2>/dev/null

# If an engine is killed during a demo, the demo names the engine in one line, exits with code 1, and
# leaves no process.
"$kvcast" demo --requests 60 --speed 4 >"$out/out" 2>"$out/demo" &
demo=$!
victim=
for _ in $(seq 600); do victim=$(pgrep -P $demo -f 'engine-1' | head -1); [ -n "$victim" ] && break; sleep 0.1; done
for _ in $(seq 600); do grep -q '0 %' "$out/demo" && break; sleep 0.1; done
kill -9 "$victim"
wait $demo; code=$?
cp "$out/demo" "$out/err"
[ $code = 1 ] || fail "demo with a killed engine: exit code $code, not 1"
[ "$(grep -c '^kvcast: ' "$out/demo")" = 1 ] || fail 'demo with a killed engine: does not print exactly one line'
grep -q 'engine-1 killed by signal 9' "$out/demo" || fail 'demo with a killed engine: does not name the engine'
[ -z "$(pgrep -P $demo)" ] || fail 'demo with a killed engine: processes left'

# After Ctrl-C all processes end soon.
"$kvcast" demo --requests 60 --speed 4 >"$out/out" 2>"$out/interrupted" &
demo=$!
for _ in $(seq 600); do grep -q '0 %' "$out/interrupted" && break; sleep 0.1; done
children=$(pgrep -P $demo)
kill -INT $demo
for _ in $(seq 600); do kill -0 $demo 2>/dev/null || break; sleep 0.1; done
wait $demo; code=$?
cp "$out/interrupted" "$out/err"
[ $code = 130 ] || fail "interrupted demo: exit code $code, not 130"
for child in $children; do kill -0 "$child" 2>/dev/null && fail "interrupted demo: process $child left"; done

[ $failures = 0 ] && echo 'all command line checks passed'
exit $((failures > 0))
