#!/usr/bin/env bash
# `cmake --install` installs a package. find_package(kvcast) finds it, and the examples build and run with it.
# usage: consumer_test.sh BUILD_DIR SOURCE_DIR COMPILER FLAGS
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
build=$1; source=$2; compiler=$3; flags=$4
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cmake --install "$build" --prefix "$out/kvcast" >"$out/log" || { cat "$out/log"; exit 1; }
[ "$("$out/kvcast/bin/kvcast" --version | head -c 6)" = kvcast ]
# The consumer sees no file of the source tree except the examples.
cmake -S "$source/tests/consumer" -B "$out/build" -G Ninja -DCMAKE_PREFIX_PATH="$out/kvcast" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="$flags" >"$out/log" 2>&1 || { cat "$out/log"; exit 1; }
cmake --build "$out/build" >"$out/log" 2>&1 || { cat "$out/log"; exit 1; }
"$source/tests/apps/commands/examples_test.sh" "$out/build" "$source"
