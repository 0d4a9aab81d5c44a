#!/usr/bin/env bash
# `kvcast conformance CLASS` over the recorded data finds no difference and no unsupported record.
# usage: conformance_test.sh KVCAST CLASS SET PART [FLAG...]     (SET and PART: recordings.sh)
set -euo pipefail
. "$(dirname "$0")/recordings.sh"
recordings "$3" "$4"
"$1" conformance "$2" "${folders[@]}" --json "${@:5}" | tee /dev/stderr | tail -1 | /usr/bin/python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["compared"] > 0 and report["equal"] == report["compared"], report
assert report["unsupported"] == 0, report
'
