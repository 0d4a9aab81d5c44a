#!/usr/bin/env bash
# Two demos print the same comparison of policies, at different speeds of the live run.
# usage: demo_policies_test.sh KVCAST
set -euo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

for speed in 40 80; do
  timeout 300 "$1" demo --requests 100 --blocks 12000 --speed "$speed" --json >"$out/$speed" 2>"$out/err" || {
    cat "$out/err" "$out/$speed"; exit 1; }
  grep -q "same trace, virtual time" "$out/err" || { echo "the table is missing"; cat "$out/err"; exit 1; }
done
/usr/bin/python3 - "$out/40" "$out/80" <<'END'
import json, sys
first, second = [json.loads(open(path).read().splitlines()[-1]) for path in sys.argv[1:]]
for key in ("policies", "computed_tokens", "reused_tokens", "loaded_tokens", "mispredicted", "first_token_s"):
    assert first[key] == second[key], (key, first[key], second[key])
policies = first["policies"]
assert [(p["rule"], p["index"]) for p in policies] == [
    ("kvcast", "exact"), ("kvcast", "full"), ("dynamo", "full"), ("dynamo:overlap_weight=4", "full"),
    ("least_loaded", "exact"), ("round_robin", "exact")], policies
for p in policies:
    assert p["exact_checked"] > 50 and p["exact_equal"] == p["exact_checked"], p
    assert 0 < p["ttft_mean_ms"] <= p["ttft_p99_ms"] and p["computed_tokens"] > 0, p
# The short names stand for these policies.
for name, p in (("kvcast", policies[0]), ("full_only", policies[1]), ("round_robin", policies[5])):
    assert first["computed_tokens"][name] == p["computed_tokens"], name
    assert first["mispredicted"][name]["over_tokens"] == p["wrong_promise_tokens"], name
    assert abs(1000 * first["first_token_s"][name] - p["ttft_mean_ms"]) < 0.001, name
print(policies)
END
