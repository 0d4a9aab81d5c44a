#!/usr/bin/env bash
# `cmake --install` installs a package that find_package(kvcast) finds. The examples build and run with the package.
# usage: consumer_test.sh BUILD_DIR SOURCE_DIR COMPILER FLAGS
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
build=$1; source=$2; compiler=$3; flags=$4
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cmake --install "$build" --prefix "$out/kvcast" >"$out/log" || { cat "$out/log"; exit 1; }
[ "$("$out/kvcast/bin/kvcast" --version | head -c 6)" = kvcast ]
# The program reads the installed traces. The changed trace shows that the program does not read the source tree.
for trace in "$source"/examples/traces/*; do
  cmp "$trace" "$out/kvcast/share/kvcast/traces/$(basename "$trace")"
done
printf '{"timestamp": 0, "input_length": 7, "output_length": 1, "hash_ids": [1]}\n' \
  >"$out/kvcast/share/kvcast/traces/mooncake_conversation_40min.jsonl.zst"
"$out/kvcast/bin/kvcast" simulate --workload chat --json 2>"$out/log" | grep -q '"prompt_tokens":7,' ||
  { cat "$out/log"; exit 1; }
# The consumer sees no file of the source tree except the examples.
cmake -S "$source/tests/consumer" -B "$out/build" -G Ninja -DCMAKE_PREFIX_PATH="$out/kvcast" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="$flags" >"$out/log" 2>&1 || { cat "$out/log"; exit 1; }
cmake --build "$out/build" >"$out/log" 2>&1 || { cat "$out/log"; exit 1; }
"$source/tests/apps/commands/examples_test.sh" "$out/build" "$source"
