#!/usr/bin/env bash
# The benchmarks run at small size. Each benchmark exits with code 0, prints one line per target, and ends
# with a JSON object that has the same targets as the lines. The scripts bench/targets and
# bench/peers/compare run too.
# usage: smoke_test.sh KVCAST
set -uo pipefail
kvcast=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failures=0

# run TARGETS ARGUMENTS...: expects at least TARGETS targets.
run() {
  local targets=$1; shift
  if ! timeout 300 "$kvcast" bench "$@" --json >"$out/out" 2>"$out/err"; then
    echo "FAILED: bench $*"; cat "$out/out" "$out/err"; failures=$((failures + 1)); return
  fi
  /usr/bin/python3 - "$out/out" "$targets" "$@" <<'PY' || failures=$((failures + 1))
import json, sys
lines = open(sys.argv[1]).read().splitlines()
report = json.loads(lines[-1])
said = [line for line in lines[:-1] if line.endswith((" ok", " MISSED", " not judged"))]
problems = []
if report["name"] != sys.argv[3]: problems.append("name " + report["name"])
if len(report["targets"]) < int(sys.argv[2]): problems.append(f"{len(report['targets'])} targets")
if len(said) != len(report["targets"]): problems.append(f"{len(said)} lines with a target")
for line, target in zip(said, report["targets"]):
    judged = not line.endswith(" not judged")
    if line.split()[0] != target["name"] or (judged and line.endswith(" ok") != target["met"]): problems.append(line)
if problems: print("FAILED:", *sys.argv[3:], problems)
sys.exit(bool(problems))
PY
}

run 4 apply --residencies 2e4 --slices 2
run 2 apply --residencies 2e4 --slices 2 --holders 3 --workers 7 --groups 3
run 36 lookup --residencies 1e5 --queries 200
run 8 memory --residencies 2e4
run 2 remove --residencies 1e5 --victim 20000 --rounds 2 --seconds 0.05
run 2 wire --residencies 2e4 --slices 2
run 4 publish --rate 200 --seconds 1
run 4 hash --rounds 3
run 0 replay --requests 60 --copies 2 --workers 4 --export "$out/corpus"
run 0 replay --corpus "$out/corpus"
for cell in apply apply2 quarter drain query mixed memory scores; do
  run 0 cells --corpus "$out/corpus" --cell $cell --rounds 1
done
# The rates of messages without and with encryption.
if ! "$kvcast" bench freshness --curve --json >"$out/curve" 2>"$out/err" ||
  ! tail -1 "$out/curve" | /usr/bin/python3 -c '
import json, sys
rates = json.load(sys.stdin)["rates"]
assert [rate["payload_bytes"] for rate in rates] == [2000, 16000], rates
assert all(rate["plain_per_s"] > 0 and rate["curve_per_s"] > 0 for rate in rates), rates'; then
  echo "FAILED: bench freshness --curve"; cat "$out/curve" "$out/err"; failures=$((failures + 1))
fi
# The benchmark of attacks prints a line per attack. Its targets need a quiet machine.
if ! "$kvcast" bench hostile --seconds 1 --sources 3 --rate 50 --attacks none,many-events >"$out/hostile" ||
  [ "$(grep -cE '^(none|many-events) .* (NOT MET|met)$' "$out/hostile")" != 2 ]; then
  echo "FAILED: bench hostile"; cat "$out/hostile"; failures=$((failures + 1))
fi
if "$kvcast" bench hostile --attacks no-such-attack >"$out/hostile" 2>&1 || ! grep -q 'no attack has the name no-such-attack' "$out/hostile"; then
  echo "FAILED: bench hostile no-such-attack"; failures=$((failures + 1))
fi
if ! "$kvcast" bench service --seconds 1 --rate 50 --workers 1 --blocks 10 --block-ops 500 --attacks longest-prompt,unfinished-uploads >"$out/http" ||
  [ "$(grep -cE '^(p99|healthz) (longest-prompt|unfinished-uploads) .* (NOT MET|met)$' "$out/http")" != 4 ]; then
  echo "FAILED: bench service"; cat "$out/http"; failures=$((failures + 1))
fi
if ! "$kvcast" bench restart --sources 2 --blocks 16384 --rate 16 --kills 1 --joins 1 --seconds 1 --state-interval 1 \
  >"$out/restart" 2>&1 || [ "$(grep -cE '^(wrong answers|digest mismatches) .* 0 .* met$' "$out/restart")" != 2 ]; then
  echo "FAILED: bench restart"; cat "$out/restart"; failures=$((failures + 1))
fi
if "$kvcast" bench service --attacks no-such-attack >"$out/http" 2>&1 || ! grep -q 'no attack has the name no-such-attack' "$out/http"; then
  echo "FAILED: bench service no-such-attack"; failures=$((failures + 1))
fi
run 1 growth --residencies 4e4 --workers 4 --queries 100 --svg "$out/svg"
run 0 sizes --max 1e5 --base 2e4 --samples 3 --csv "$out/csv" --svg "$out/svg"

# bench/targets prints the worst of several runs for each target. Exit code 1: a target is missed, or a
# benchmark failed, so lines are missing. Exit code 2: wrong usage. Exit code 3: the machine was busy.
"$(dirname "$0")/../../../bench/targets" "$kvcast" --runs 2 --arguments "--rounds 3" --history "$out/history" hash \
  >"$out/targets"
code=$?
if [ $code = 3 ]; then
  grep -q '^hash: not judged: ' "$out/targets" && code=0
elif [ "$(grep -cE ' (ok|MISSED) +no history yet$' "$out/targets")" -lt 4 ]; then
  code=2
fi
if [ $code -gt 1 ]; then
  echo "FAILED: bench/targets"; cat "$out/targets"; failures=$((failures + 1))
fi

# Without cargo the comparison with other indexes does nothing.
if ! "$(dirname "$0")/../../../bench/peers/compare" "$kvcast" --cargo "$out/no-cargo" | grep -q '^skipped: '; then
  echo "FAILED: bench/peers/compare"; failures=$((failures + 1))
fi
exit $((failures > 0))
