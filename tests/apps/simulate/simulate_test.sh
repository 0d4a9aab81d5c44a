#!/usr/bin/env bash
# The command line of `kvcast simulate`: a wrong flag gives exit code 2 and one line on stderr. A small run of
# all bundled workloads ends with exit code 0 and one line of valid JSON.
# usage: simulate_test.sh KVCAST
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
kvcast=$1
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failures=0

fail() { echo "FAILED: $1"; sed 's/^/  | /' "$out/err"; failures=$((failures + 1)); }

# expect CODE TEXT FLAGS...: exit code CODE and exactly one line on stderr, which contains TEXT.
expect() {
  local code=$1 text=$2; shift 2
  timeout 60 "$kvcast" simulate "$@" >"$out/out" 2>"$out/err"
  local got=$?
  [ $got = "$code" ] || fail "$*: exit code $got, not $code"
  [ "$(wc -l <"$out/err")" = 1 ] || fail "$*: $(wc -l <"$out/err") lines on stderr, not 1"
  grep -qF -- "$text" "$out/err" || fail "$*: stderr does not contain '$text'"
}

expect 2 '--nonsense' --nonsense
expect 2 '--workload' --workload mail
expect 2 '--slices' --slices 0
expect 2 '--engines' --engines 0
expect 2 '--jobs' --jobs none
expect 2 '--loss' --loss 1.5
expect 2 '--delay-ms: expected a number' --delay-ms nan
expect 2 "--model: expected one of hybrid" --model nothing
expect 2 "unknown rule 'oracle'" --rules kvcast,oracle
expect 2 "dynamo has no parameter 'weight'" --rules dynamo:weight=1
expect 2 "got 'nan'" --rules dynamo:overlap_weight=nan
expect 2 "--index: expected exact, full, any or approx, got 'none'" --index none
expect 2 '--retention: expected' --workload shared --retention sometimes
expect 2 'retention_interval (7)' --workload shared --retention 7
expect 2 '--kill-at' --engines 1 --kill-at 5
expect 1 '/nonexistent/trace' --trace /nonexistent/trace
expect 1 '/dev/null: holds no request' --trace /dev/null
touch "$out/file"
expect 1 "--report: cannot create $out/file/below" --report "$out/file/below"

"$kvcast" simulate --list-rules >"$out/rules" 2>"$out/err" || fail '--list-rules'
[ -s "$out/err" ] && fail '--list-rules: text on stderr'
for line in 'round_robin: ' 'dynamo: ' 'kvcast: ' '    overlap_weight=1' '    source: '; do
  grep -q "^$line" "$out/rules" || fail "--list-rules: no line '$line'"
done

# All bundled workloads, each in one small slice.
"$kvcast" simulate --slices 1 --slice-requests 60 --rules kvcast,round_robin --report "$out/report" --json \
  >"$out/json" 2>"$out/err" || fail 'small run'
[ "$(wc -l <"$out/json")" = 1 ] || fail "--json: $(wc -l <"$out/json") lines on stdout, not 1"
grep -q '^exactness: .* at \([1-9][0-9]*\) of \1 admissions' "$out/err" || fail '--json: no table on stderr'
[ "$(ls "$out/report" | wc -l)" = 10 ] || fail "--report: $(ls "$out/report" | wc -l) files, not 10"
/usr/bin/python3 - "$out/json" <<'PYTHON' || fail 'small run: JSON'
import json, sys
report = json.load(open(sys.argv[1], encoding="utf-8"))
assert set(report) == {"runs", "pairs"}, report.keys()
arms = [(w, 0, r, i) for w in ("agents", "shared", "chat") for r in ("kvcast", "round_robin") for i in ("exact", "full")]
assert [(run["workload"], run["slice"], run["rule"], run["index"]) for run in report["runs"]] == arms, report["runs"]
for run in report["runs"]:
    assert 0 < run["ttft_mean_ms"] <= run["ttft_p99_ms"] and run["refused"] == 0, run
    assert 0 <= run["reused_tokens"] < run["prompt_tokens"], run
    assert 0 < run["exact_checked"] <= 60 and run["exact_equal"] == run["exact_checked"], run
assert len(report["pairs"]) == 3 * 4 * 3, len(report["pairs"])
assert all(0 < pair["low"] <= pair["ratio"] <= pair["high"] for pair in report["pairs"]), report["pairs"]
PYTHON

# The result depends on the seed and not on the number of jobs. Without --json, the table is on stdout.
for flags in '--jobs 1' '--jobs 2' '--jobs 1 --seed 2'; do
  # shellcheck disable=SC2086
  "$kvcast" simulate --workload shared --slices 2 --slice-requests 40 $flags >"$out/table $flags" 2>"$out/err" ||
    fail "$flags"
done
cmp -s "$out/table --jobs 1" "$out/table --jobs 2" || fail '--jobs 2 changes the result'
cmp -s "$out/table --jobs 1" "$out/table --jobs 1 --seed 2" && fail '--seed 2 does not change the result'

# The program searches for a trace in the folder KVCAST_DATA_DIR first, and then in its own traces.
mkdir -p "$out/data/traces"
printf '{"timestamp": 0, "input_length": 7, "output_length": 1, "hash_ids": [1]}\n' \
  >"$out/data/traces/mooncake_conversation_40min.jsonl.zst"
KVCAST_DATA_DIR=$out/data "$kvcast" simulate --workload chat --json 2>"$out/err" |
  grep -q '"prompt_tokens":7,' || fail 'KVCAST_DATA_DIR'

[ $failures = 0 ] && echo 'all checks of kvcast simulate passed'
exit $((failures > 0))
