#!/usr/bin/env bash
# `kvcast conformance router --joins`: a router that joins late gives no wrong exact answer. If all
# properties are configured and the hash scheme is proven, every answer after a join by a snapshot equals
# the engine's lookup.
# usage: conformance_joins_test.sh KVCAST SET     (SET: recordings.sh)
set -euo pipefail
. "$(dirname "$0")/recordings.sh"
recordings "$2" scenarios
for told in all nothing; do
  "$1" conformance router "${folders[@]}" --joins 1 --told "$told" --json | tail -1 | tee /dev/stderr | /usr/bin/python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["compared"] > 0 and report["exact"] > 0, report
assert report["exact_wrong"] == 0 and report["joined_not_equal"] == 0, report
'
done
