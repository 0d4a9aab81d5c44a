#!/usr/bin/python3
"""Measures the time until a new router has the blocks of the logs in NATS. It is no test of ctest.
usage: nats_join.py KVCAST [SOURCES [BLOCKS_PER_SOURCE]]
SPDX-License-Identifier: Apache-2.0
"""
import json
import pathlib
import random
import sys
import tempfile
import threading
import time

import msgpack
import zmq

import nats_server
from nats_relay import Relay
from nats_server import NatsServer
from router_process import Router, check, finish

KVCAST = sys.argv[1]
SOURCES = int(sys.argv[2]) if len(sys.argv) > 2 else 1
BLOCKS = int(sys.argv[3]) if len(sys.argv) > 3 else 6_400_000
PER_BATCH = 4000
PATIENCE_S = 600


class Engines:
    """Publishers that are silent, except for the answers to replay requests."""

    def __init__(self):
        context = zmq.Context.instance()
        self.routers, self.sources, self.pubs = {}, [], []
        for _ in range(SOURCES):
            pub, router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
            router.sndhwm = 0
            for sock in (pub, router):
                sock.linger = 0
                sock.bind("tcp://127.0.0.1:*")
            self.pubs.append(pub)
            self.sources.append({"endpoint": pub.last_endpoint.decode(), "replay_endpoint": router.last_endpoint.decode()})
            self.routers[router] = [self.batch(i) for i in range(0, BLOCKS, PER_BATCH)]
        threading.Thread(target=self.run, daemon=True).start()

    @staticmethod
    def batch(first):
        hashes = [random.getrandbits(63) for _ in range(min(PER_BATCH, BLOCKS - first))]
        return msgpack.packb([time.time(), [{
            "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None, "token_ids": [], "block_size": 16,
            "lora_id": None, "medium": "GPU", "group_idx": 0, "kv_cache_spec_kind": "full_attention"}], 0])

    def run(self):
        poller = zmq.Poller()
        for router in self.routers:
            poller.register(router, zmq.POLLIN)
        while True:
            for router, _ in poller.poll():
                client, empty, start = router.recv_multipart()[:3]
                for seq in range(int.from_bytes(start, "big"), len(self.routers[router])) if len(start) == 8 else ():
                    router.send_multipart([client, empty, seq.to_bytes(8, "big"), self.routers[router][seq]])
                router.send_multipart([client, empty, (2**64 - 1).to_bytes(8, "big"), b""])


def await_all(claim, holds):
    begin = time.monotonic()
    while not holds():
        time.sleep(0.2)
        if time.monotonic() > begin + PATIENCE_S:
            check(claim, False)
            finish()
    return time.monotonic() - begin


def state(router):
    workers = json.loads(router.get("/v1/state"))["workers"]
    synced = sum(worker["state"] == "synced" for worker in workers)
    return synced, sum(worker["residencies"] for worker in workers)


if nats_server.PROGRAM is None:
    print("skipped: no nats-server")
    sys.exit(77)
with tempfile.TemporaryDirectory() as temporary:
    server = NatsServer(temporary).start()
    engines = Engines()
    relays = [Relay(KVCAST, source, server, f"model/engine-{i}", "--nats-snapshot-mib", "1")
              for i, source in enumerate(engines.sources)]
    await_all("the relays write", lambda: all(relay.log_states()[-1:] == ["writing"] for relay in relays))
    flags = [flag for i in range(SOURCES)
             for flag in ("--source", f"engine-{i}=nats:model/engine-{i},max_residencies={BLOCKS + 1000}")]
    wanted = (SOURCES, SOURCES * BLOCKS)
    first = Router(KVCAST, *flags, "--nats", server.url, "--max-residencies", str(2 * SOURCES * BLOCKS))
    await_all("the logs are complete", lambda: state(first) == wanted)
    first.end()
    began = time.monotonic()
    router = Router(KVCAST, *flags, "--nats", server.url, "--max-residencies", str(2 * SOURCES * BLOCKS))
    await_all("the router has joined", lambda: state(router) == wanted)
    seconds = time.monotonic() - began
    mismatches = [line for line in router.get("/metrics").splitlines()
                  if line.startswith("kvcast_source_digest_mismatches_total{") and not line.endswith(" 0")]
    check("the digests are equal", not mismatches, mismatches)
    size = sum(path.stat().st_size for path in pathlib.Path(temporary).rglob("*.blk"))
    print(f"{SOURCES} sources, {SOURCES * BLOCKS} residencies, logs of {size / 2**20:.0f} MiB: {seconds:.2f} s to synced")
    router.end()
    for relay in relays:
        relay.kill()
    server.kill()
finish()
