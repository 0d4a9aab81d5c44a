#!/usr/bin/env bash
# `kvcast conformance CLASS` over the recorded data: equal = compared, nothing unsupported.
# usage: conformance_test.sh KVCAST CLASS FOLDER [FLAG...]     (exit 77, "skipped", without the folder)
set -euo pipefail
if [ ! -d "${3:-}" ]; then
  echo "skipped: no recorded data (set KVCAST_CONFORMANCE)"
  exit 77
fi
"$1" conformance "$2" "$3" --json "${@:4}" | tee /dev/stderr | tail -1 | /usr/bin/python3 -c '
import json, sys
report = json.load(sys.stdin)
assert report["compared"] > 0 and report["equal"] == report["compared"], report
assert report["unsupported"] == 0, report
'
