#!/usr/bin/python3
"""A router behind `kvcast relay` has exactly the blocks of an engine with vLLM's publisher, like a router that follows
the engine itself. A router that joins the relay gets all blocks, at any time. The engine, the relay and the router are
restarted.
usage: stream_relay_test.py KVCAST [ROUNDS]
SPDX-License-Identifier: Apache-2.0
"""
import atexit
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile

from router_process import Router, check, finish, until
from vllm_publisher import Engine, blocks, expect_exact, worker

KVCAST = sys.argv[1]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 2


class Relay:
    def __init__(self, source, endpoint="tcp://127.0.0.1:0", replay="tcp://127.0.0.1:0", flags=()):
        command = [KVCAST, "relay", "--source", f"{source['endpoint']},{source['replay_endpoint']}", "--log-format", "json",
                   "--endpoint", endpoint, "--replay-endpoint", replay, *flags]
        # A relay that was killed may keep its ports for a moment.
        until("the relay listens", lambda: self.start(command))

    def start(self, command):
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        for line in self.process.stderr:
            if line.startswith("{") and json.loads(line)["event"] == "stream_listening":
                self.endpoint, self.replay = json.loads(line)["address"], json.loads(line)["replay"]
                return True
        return False

    def kill(self):
        self.process.kill()
        self.process.wait(60)


def follow(endpoint, replay, *flags, members=""):
    return Router(KVCAST, "--source", f"engine={endpoint},{replay}{members}", *flags)


def restarted(engine):
    engine.end()
    return Engine([engine.source[end].rpartition(":")[2] for end in ("endpoint", "replay_endpoint")])


def kill(router):
    router.process.send_signal(signal.SIGKILL)
    router.process.wait(60)


engine = Engine()
relay = Relay(engine.source)
direct = follow(engine.source["endpoint"], engine.source["replay_endpoint"])
behind = follow(relay.endpoint, relay.replay)
expect_exact("at first, direct", direct, engine)
expect_exact("at first, behind the relay", behind, engine, direct=False)
engine.outlive_ring()
expect_exact("direct", direct, engine)
expect_exact("behind the relay", behind, engine, direct=False)

kill(behind)
kill(direct)
behind = follow(relay.endpoint, relay.replay)
direct = follow(engine.source["endpoint"], engine.source["replay_endpoint"])
expect_exact("a late router behind the relay", behind, engine, direct=False)
until("a late router without the relay lacks blocks", lambda: worker(direct)["state"] == "cleared")

engine = restarted(engine)
expect_exact("the engine has restarted", direct, engine)
expect_exact("the engine has restarted, behind the relay", behind, engine, direct=False)

engine.outlive_ring()
relay.kill()
relay = Relay(engine.source, relay.endpoint, relay.replay)
until("behind a late relay, blocks are missing", lambda: worker(behind)["state"] == "cleared")
engine.rest()
until("blocks are missing", lambda: set(blocks(behind)) < set(engine.held))
for prompt, _ in engine.truth():
    answer = behind.ask({"tokens": prompt})["workers"][0]
    check("no answer claims to be exact", not answer["exact"], answer)
engine.pause.clear()
engine = restarted(engine)
expect_exact("the blocks are complete again", behind, engine, direct=False)

for _ in range(ROUNDS):
    for program in random.sample(("engine", "relay", "router"), 3):
        if program == "engine":
            engine = restarted(engine)
        elif program == "relay":
            # The replay ring of a restarted engine still has all its batches. The new relay gets them from this ring.
            engine = restarted(engine)
            relay.kill()
            relay = Relay(engine.source, relay.endpoint, relay.replay)
        else:
            kill(behind)
            behind = follow(relay.endpoint, relay.replay)
        expect_exact(f"after a restart of the {program}", behind, engine, direct=False)

# The stream of the relay is encrypted, and only the listed router may follow it.
with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    for name in ("relay", "router", "other"):
        subprocess.run([KVCAST, "keygen", "--out", folder / name], check=True, capture_output=True)
    public = {name: (folder / f"{name}.pub").read_text("ascii").strip() for name in ("relay", "router")}
    (folder / "clients").write_text(f"subscribe,replay,snapshot {public['router']}\n", encoding="ascii")
    engine = restarted(engine)
    curve = Relay(engine.source, flags=("--curve-key", folder / "relay.key", "--curve-clients", folder / "clients"))
    routers = {name: follow(curve.endpoint, curve.replay, "--curve-key", folder / f"{name}.key",
                            members=f",server_key={public['relay']}") for name in ("router", "other")}
    expect_exact("with CURVE", routers["router"], engine, direct=False)
    until("another key is refused", lambda: "kvcast_source_failed_handshakes_total{worker=\"engine\"} 0\n"
          not in routers["other"].get("/metrics"))
    check("a router with another key gets no batch", worker(routers["other"])["next_seq"] == 0)
    for router in routers.values():
        router.end()
    curve.kill()

expect_exact("the relay without CURVE has the new engine, too", behind, engine, direct=False)
engine.end()
until("the engine has ended", lambda: worker(behind)["state"] == "stale")

taken = subprocess.run([KVCAST, "relay", "--source", "tcp://127.0.0.1:9", "--endpoint", relay.endpoint], text=True,
                       capture_output=True, timeout=60)
check("an endpoint in use is named", taken.returncode == 1 and relay.endpoint in taken.stderr, taken)
for flags, wanted in ((("--source", "nonsense"), "nonsense"), (("--source", "tcp://10.0.0.1:9"), "or set --insecure-source"),
                      (("--source", "tcp://127.0.0.1:9", "--insecure-source", "--server-key", "x", "--curve-key", "x",
                        "--curve-clients", "x"), "--insecure-source: not with --server-key"),
                      ((), "--source")):
    refused = subprocess.run([KVCAST, "relay", *flags, "--endpoint", "tcp://127.0.0.1:0", "--replay-endpoint",
                              "tcp://127.0.0.1:0"], text=True, capture_output=True, timeout=60)
    check(f"{flags} is refused", refused.returncode != 0 and wanted in refused.stderr, refused)
relay.process.terminate()
check("the relay ends", relay.process.wait(timeout=60) == 128 + signal.SIGTERM)
behind.end()
direct.end()
finish()
