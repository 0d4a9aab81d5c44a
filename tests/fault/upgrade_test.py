#!/usr/bin/python3
"""A fleet is upgraded while it runs, and then downgraded: first the engine, then the router. After each step, the
router's state is equal to the engine's state by digest, no batch is lost, and no message is misread.
usage: upgrade_test.py OLD_KVCAST NEW_KVCAST
# SPDX-License-Identifier: Apache-2.0
"""
import pathlib
import re
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from ports import free_ports

TIMEOUT_S = 120
REJECTS = ("bad_messages", "rejected_events", "undecodable_batches", "scheme_mismatched_stores",
           "scheme_contradictions")


HTTP, LIVE, REPLAY = (f"127.0.0.1:{port}" for port in free_ports(3))


class Program:
    """A kvcast process. It can be replaced by another release at the same address."""

    def __init__(self, arguments):
        self.arguments, self.process = arguments, None

    def run(self, program):
        self.stop()
        self.process = subprocess.Popen([program, *self.arguments], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.wait()


ENGINE = Program(["engine", "--endpoint", f"tcp://{LIVE}", "--replay-endpoint", f"tcp://{REPLAY}", "--speed", "20",
                  "--blocks", "20000"])
ROUTER = Program(["router", "--http", HTTP, "--source", f"engine=tcp://{LIVE},tcp://{REPLAY}"])


def metrics():
    """Returns the counters of the router's only source, and its state; empty while the router does not answer."""
    try:
        with urllib.request.urlopen(f"http://{HTTP}/metrics", timeout=10) as reply:
            text = reply.read().decode()
    except OSError:
        return {}
    counters = {name: float(value) for name, value in
                re.findall(r"^kvcast_source_(\w+)_total\{[^}]*\} (\S+)$", text, re.M)}
    state = re.search(r"^kvcast_source_state\{[^}]*state=\"(\w+)\"[^}]*\} 1$", text, re.M)
    return counters | {"state": state and state[1]}


COMPARISONS = ("digest_checks", "scheme_matched_stores")  # old releases lack the second


def await_equal(step, before):
    """Waits until each counter of COMPARISONS exceeds its value in `before`. The router compares its state with the
    digests of the engine, and the hashes of the engine with its own hashes of the tokens. The digests cover only the
    hashes of blocks. The router's own hashes also show wrong tokens and extra keys. Returns the counters of the
    router."""
    deadline = time.monotonic() + TIMEOUT_S
    source = {}
    while source.get("state") != "synced" or any(source[name] <= before.get(name, 0) for name in COMPARISONS
                                                 if name in source):
        if time.monotonic() > deadline:
            sys.exit(f"FAILED: {step}: not compared in {TIMEOUT_S} s: {source}")
        time.sleep(0.2)
        source = metrics()
    wrong = {name: source[name] for name in ("digest_mismatches", "lost_batches") if source[name] > 0}
    # Old releases lack some of the counters in REJECTS.
    wrong |= {name: count for name, count in source.items() if name in REJECTS and count > 0}
    if wrong or source["batches"] == 0:
        sys.exit(f"FAILED: {step}: {wrong} {source}")
    print(f"{step}: {source['batches']:.0f} batches, {source['digest_checks']:.0f} comparisons, all equal")
    return source


def main():
    old, new = sys.argv[1:]
    try:
        ENGINE.run(old)
        ROUTER.run(old)
        seen = await_equal("old engine, old router", {})
        ENGINE.run(new)
        await_equal("new engine, old router", seen)
        ROUTER.run(new)
        seen = await_equal("new engine, new router", {})
        ENGINE.run(old)
        await_equal("old engine, new router", seen)
        ROUTER.run(old)
        await_equal("old engine, old router again", {})
    finally:
        ROUTER.stop()
        ENGINE.stop()


main()
