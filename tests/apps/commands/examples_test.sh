#!/usr/bin/env bash
# The examples work as documented. One engine publishes; a router and a Python tail follow it. Another
# engine has host memory, and the router reports how many tokens that engine can reuse with loads.
# The test does not build the container. It checks that the Dockerfile names the packages of all libraries
# that kvcast is linked with.
# usage: examples_test.sh BIN_DIR SOURCE_DIR
set -euo pipefail
bin=$1; source=$2
out=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$out"' EXIT

"$bin/engine_publish" 6 >"$out/engine" &
for _ in $(seq 600); do [ -s "$out/engine" ] && break; sleep 0.1; done
read -r endpoint replay <"$out/engine"

timeout 60 /usr/bin/python3 "$source/examples/tail.py" "$endpoint" kv.example 2 >"$out/tail"
grep -q 'BlockStored group 1' "$out/tail"

timeout 60 "$bin/route_request" "$endpoint" "$replay" | tee "$out/route"
grep -qx 'engine can reuse 128 of 150 tokens' "$out/route"

# An engine with an offloading connector. It runs until its input ends.
mkfifo "$out/input"
"$bin/engine_offload" <"$out/input" >"$out/offload" &
exec 3>"$out/input"
for _ in $(seq 600); do grep -q 'batches published' "$out/offload" && break; sleep 0.1; done
cat "$out/offload"
read -r endpoint replay <"$out/offload"
grep -qx 'first again: 16 tokens from the GPU, 272 loaded, 12 computed; 0 blocks are wrong' "$out/offload"
batches=$(sed -n 's/ batches published//p' "$out/offload")
timeout 60 "$bin/route_request" "$endpoint" "$replay" "$batches" | tee "$out/route"
grep -qx 'engine can reuse 16 of 150 tokens' "$out/route"
grep -qx 'with loads from host memory, it can reuse 144' "$out/route"
exec 3>&-

[ -x "$bin/kvcast" ] || exit 0
# The container's second stage installs the libraries that the program is linked with.
while read -r library; do
  path=$(readlink -f "$(ldd "$bin/kvcast" | awk -v name="$library" '$1 == name {print $3}')")
  package=$( (dpkg -S "$path" 2>/dev/null || dpkg -S "${path#/usr}") | cut -d: -f1)
  case $package in libc6 | libgcc-s1 | libasan8 | libubsan1 | libtsan2) continue ;; esac
  grep -qw "$package" "$source/examples/deploy/Dockerfile" || { echo "not in the container: $package"; exit 1; }
done < <(objdump -p "$bin/kvcast" | awk '$1 == "NEEDED" && $2 !~ /^ld-linux/ {print $2}')
