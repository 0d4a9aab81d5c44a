#!/usr/bin/env bash
# `kvcast conformance router --told` over the recorded data. No exact answer is wrong, and some answers
# are exact.
# usage: conformance_told_test.sh KVCAST TOLD SCHEME SET     (SET: recordings.sh)
set -euo pipefail
. "$(dirname "$0")/recordings.sh"
recordings "$4" scenarios
"$1" conformance router "${folders[@]}" --told "$2" --scheme "$3" --json | tee /dev/stderr | tail -1 | /usr/bin/python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["compared"] > 0 and report["unsupported"] == 0, report
assert report["exact"] > 0 and report["exact_wrong"] == 0, report
'
