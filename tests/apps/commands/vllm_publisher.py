"""An engine with a publisher of vLLM's protocol, for tests. `expect_exact` compares a router with such an engine.
SPDX-License-Identifier: Apache-2.0
"""
import collections
import json
import random
import threading
import time

import msgpack
import zmq

from router_process import check, until

BLOCK = 16
KEPT = 30  # the engine never removes its first 30 blocks
RING = 4000  # batches; more than an engine publishes while a process starts on a busy machine
# The members of a store that are equal in all stores.
STORED = {"type": "BlockStored", "lora_id": None, "medium": "GPU", "group_idx": 0,
          "kv_cache_spec_kind": "full_attention", "block_size": BLOCK}


def bound(sock, port):
    """Binds the socket. A closed socket keeps its port for a moment."""
    try:
        sock.bind(f"tcp://127.0.0.1:{port}")
        return True
    except zmq.ZMQError as error:
        if error.errno != zmq.EADDRINUSE:
            raise
        return False


class Engine:
    """A publisher of vLLM's protocol. A thread publishes and answers replays from a ring of RING batches."""

    def __init__(self, ports=("*", "*")):
        context = zmq.Context.instance()
        self.pub, self.router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
        self.pub.linger = self.router.linger = 0
        for sock, port in zip((self.pub, self.router), ports):
            until("the port is free", lambda sock=sock, port=port: bound(sock, port))
        self.source = {"name": "engine", "endpoint": self.pub.last_endpoint.decode(),
                       "replay_endpoint": self.router.last_endpoint.decode()}
        self.ring = collections.deque(maxlen=RING)
        self.held = {}  # hash -> (prompt, position, hashes of the prompt)
        self.seq = 0
        self.fast_until = 0  # batches below this number follow each other without a pause
        self.random = random.Random(self.pub.last_endpoint)
        self.pause, self.stop, self.paused = threading.Event(), threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def batch(self):
        """Stores the blocks of a new prompt, or removes some blocks. The first blocks are never removed."""
        removable = list(self.held)[KEPT:]
        if removable and self.random.random() < 0.4:
            gone = self.random.sample(removable, min(len(removable), 20))
            for block in gone:
                del self.held[block]
            return {"type": "BlockRemoved", "block_hashes": gone, "medium": "GPU", "group_idx": 0}
        prompt = [self.random.randrange(100_000) for _ in range(BLOCK * self.random.randint(1, 30))]
        hashes = [self.random.getrandbits(63) for _ in range(len(prompt) // BLOCK)]
        for i, block in enumerate(hashes):
            self.held[block] = (prompt, i, hashes)
        return STORED | {"block_hashes": hashes, "parent_block_hash": None, "token_ids": prompt}

    def run(self):
        while not self.stop.is_set():
            if self.pause.is_set():
                self.paused.set()
            else:
                self.paused.clear()
                payload = msgpack.packb([time.time(), [self.batch()], 0])
                self.ring.append((self.seq, payload))
                self.pub.send_multipart([b"", self.seq.to_bytes(8, "big"), payload])
                self.seq += 1
            while self.router.poll(0 if self.seq < self.fast_until else 3):
                client, empty, start = self.router.recv_multipart()[:3]
                if len(start) == 8:
                    for seq, payload in self.ring:
                        if seq >= int.from_bytes(start, "big"):
                            self.router.send_multipart([client, empty, seq.to_bytes(8, "big"), payload])
                self.router.send_multipart([client, empty, (2**64 - 1).to_bytes(8, "big"), b""])

    def rest(self):
        self.pause.set()
        self.paused.wait(60)

    def outlive_ring(self):
        """Publishes until the ring has no batch that was published before the call."""
        end = self.fast_until = self.seq + RING + 100
        until("the ring is shorter than the life of the engine", lambda: self.seq > end)

    def end(self):
        self.stop.set()
        self.thread.join()
        self.pub.close()
        self.router.close()

    def truth(self):
        """Returns some prompts with the number of their tokens that the engine can reuse."""
        for prompt, _, hashes in self.random.sample(list(self.held.values()), min(len(self.held), 20)):
            blocks = 0
            while blocks < len(hashes) and hashes[blocks] in self.held:
                blocks += 1
            yield prompt + [7], blocks * BLOCK


def worker(router):
    return json.loads(router.get("/v1/state"))["workers"][0]


def blocks(router):
    """Returns the hashes of the blocks that the router has."""
    dump = json.loads(router.get("/dump"))
    return sorted(block["block_hash"] for model in dump.values() for event in model["events"]
                  for block in event["event"]["data"]["stored"]["blocks"])


def expect_exact(label, router, engine, direct=True):
    """Compares the router with the engine while the engine rests. `direct`: the router follows the engine itself, so
    the router has the engine's sequence numbers."""
    engine.rest()
    until(f"{label}: synced", lambda: worker(router)["state"] == "synced"
          and (not direct or worker(router)["next_seq"] == engine.seq))
    until(f"{label}: the router has the engine's blocks", lambda: blocks(router) == sorted(engine.held))
    for prompt, reusable in engine.truth():
        answer = router.ask({"tokens": prompt})["workers"][0]
        check(f"{label}: the reusable tokens of an answer", answer["reusable_tokens"] == reusable,
              (answer["reusable_tokens"], reusable))
    engine.pause.clear()
