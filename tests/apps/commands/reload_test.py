#!/usr/bin/python3
"""`kvcast router` follows changed lists of sources while it runs: files of --source-file, and after SIGHUP the
configuration file. A source that does not change keeps its blocks.
usage: reload_test.py KVCAST
SPDX-License-Identifier: Apache-2.0
"""
import json
import pathlib
import signal
import sys
import tempfile
import time

import msgpack
import zmq

from router_process import Router, check, finish, until

KVCAST = sys.argv[1]


class Engine:
    """A publisher that answers replays, so that the router knows that no batch is missing."""

    def __init__(self, name):
        context = zmq.Context.instance()
        self.pub, self.router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
        self.source = {"name": name,
                       "endpoint": f"tcp://127.0.0.1:{self.pub.bind_to_random_port('tcp://127.0.0.1')}",
                       "replay_endpoint": f"tcp://127.0.0.1:{self.router.bind_to_random_port('tcp://127.0.0.1')}"}
        tokens = list(range(16))
        stored = {"type": "BlockStored", "block_hashes": [hash(name) & 0xFFFF], "parent_block_hash": None,
                  "token_ids": tokens, "block_size": 16, "lora_id": None, "medium": "GPU", "group_idx": 0,
                  "kv_cache_spec_kind": "full_attention"}
        self.payload = msgpack.packb([time.time(), [stored], 0])

    def serve(self):
        while self.router.poll(0):
            client, empty, start = self.router.recv_multipart()[:3]
            if len(start) == 8 and int.from_bytes(start, "big") == 0:
                self.router.send_multipart([client, empty, bytes(8), self.payload])
            self.router.send_multipart([client, empty, (2**64 - 1).to_bytes(8, "big"), b""])


def blocks(router):
    """Returns the number of blocks of each source."""
    return {source["name"]: source["residencies"] for source in json.loads(router.get("/v1/state"))["workers"]}


def readiness(router):
    return json.loads(router.get("/readyz"))


def write(path, *sources, **members):
    path.write_text(json.dumps({"sources": list(sources)} | members), encoding="utf-8")


idle = {"endpoint": "tcp://127.0.0.1:9"}
with tempfile.TemporaryDirectory() as temporary:
    config, listed = pathlib.Path(temporary) / "config.json", pathlib.Path(temporary) / "listed.json"
    one, two = Engine("one"), Engine("two")
    write(config, one.source)
    write(listed, two.source)

    def serve():
        one.serve()
        two.serve()

    router = Router(KVCAST, "--config", config, "--source-file", listed)
    until("both sources are synced", lambda: readiness(router)["ready"], serve)
    state = readiness(router)
    check("no source is degraded", state["degraded"] == [], state)

    write(listed, two.source, {"name": "three", **idle})
    until("the file adds a source", lambda: sorted(router.endpoints()) == ["one", "three", "two"], serve)
    write(config, one.source, {"name": "four", **idle}, weights={"work": 2})
    router.process.send_signal(signal.SIGHUP)
    reloaded = router.await_event("reloaded")
    check("the configuration adds a source", (reloaded["added"], reloaded["removed"], reloaded["errors"]) == (1, 0, 0),
          reloaded)
    check("all sources are followed", sorted(router.endpoints()) == ["four", "one", "three", "two"])
    held = blocks(router)
    check("a source that did not change keeps its blocks", (held["one"], held["two"]) == (1, 1), held)

    config.write_text('{"sources": [{}]}', encoding="utf-8")
    router.process.send_signal(signal.SIGHUP)
    failed = router.await_event("reload_failed")
    check("the error names the member", "sources[0]: name: required" in failed["reason"], failed)
    check("an invalid configuration changes nothing", sorted(router.endpoints()) == ["four", "one", "three", "two"])

    write(config)
    router.process.send_signal(signal.SIGHUP)
    check("the configuration removes its sources", router.await_event("reloaded")["removed"] == 2)
    write(listed)
    until("the file removes its sources", lambda: sorted(router.endpoints()) == [])
    state = readiness(router)
    check("a router without a source is not ready", not state["ready"] and state["no_source"], state)
    router.end()
finish()
