#!/usr/bin/python3
"""A router that is killed starts again with its saved state. It then has exactly the blocks of its engine. The replay
ring of the engine holds only a small part of the engine's batches. The engine may have restarted.
usage: state_test.py KVCAST [KILLS]
SPDX-License-Identifier: Apache-2.0
"""
import json
import pathlib
import random
import signal
import sys
import tempfile
import time

from router_process import Router, check, finish, until
from vllm_publisher import Engine, expect_exact, worker

KVCAST = sys.argv[1]
KILLS = int(sys.argv[2]) if len(sys.argv) > 2 else 4


def metric(router, name):
    return float(router.get("/metrics").split(f"\n{name} ")[1].split("\n")[0])


def saves(router):
    return metric(router, "kvcast_state_saves_total")


def resets(router):
    return metric(router, 'kvcast_source_resets_total{worker="engine"}')


def ignore_children():
    """Runs in the new process. A supervisor may ignore SIGCHLD, and the router inherits this."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)


with tempfile.TemporaryDirectory() as temporary:
    config, state = pathlib.Path(temporary) / "config.json", pathlib.Path(temporary) / "state"
    engine = Engine()
    config.write_text(json.dumps({"sources": [engine.source], "state": str(state), "state_interval_s": 1}), encoding="utf-8")
    router = Router(KVCAST, "--config", config, preexec_fn=ignore_children)
    expect_exact("the router has all batches", router, engine)
    engine.outlive_ring()
    expect_exact("at first", router, engine)
    for kill in range(KILLS):
        before = saves(router)
        until("the state is saved", lambda: saves(router) > before)
        check("no save failed", metric(router, "kvcast_state_save_errors_total") == 0)
        time.sleep(random.random() / 2)  # the kill comes at any time, also during a save
        router.process.send_signal(signal.SIGKILL)
        router.process.wait(60)
        router = Router(KVCAST, "--config", config)
        until("the saved blocks are restored", lambda: metric(router, "kvcast_state_workers_restored_total") == 1)
        expect_exact(f"kill {kill}", router, engine)
        check("the state was not dropped", resets(router) == 0, worker(router))

    router.process.send_signal(signal.SIGKILL)
    router.process.wait(60)
    engine.end()
    engine = Engine([engine.source[end].rpartition(":")[2] for end in ("endpoint", "replay_endpoint")])
    until("the engine's next run has batches", lambda: engine.seq > 300)
    router = Router(KVCAST, "--config", config)
    until("the state of the engine's earlier run is dropped", lambda: resets(router) > 0)
    expect_exact("another run", router, engine)
    router.end()
    engine.end()
finish()
