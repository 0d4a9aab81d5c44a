#!/usr/bin/env python3
"""A reader without any kvcast code follows a kvcast engine. The reader uses pyzmq, msgpack and vLLM's
three frames. It skips live batches on purpose, and closes these gaps over a DEALER socket, as vLLM's
replay server requires.
usage: interop_test.py KVCAST
# SPDX-License-Identifier: Apache-2.0
"""
import collections
import re
import subprocess
import sys

import msgpack
import zmq

END = (-1).to_bytes(8, "big", signed=True)
BATCHES = 400  # the test ends when the reader has applied this number of batches
LEFT_OUT = [(40, 44), (45, 46), (120, 180), (300, 301)]  # the reader skips these live batches, end exclusive


class Reader:
    def __init__(self, endpoint, replay_endpoint):
        context = zmq.Context.instance()
        self.live = context.socket(zmq.SUB)
        self.live.subscribe("")
        self.live.connect(endpoint)
        self.replay = context.socket(zmq.DEALER)
        self.replay.connect(replay_endpoint)
        self.next = 0
        self.replayed = 0
        self.events = collections.Counter()
        self.copies = collections.Counter()  # by (group, hash)

    def apply(self, seq, payload):
        assert seq == self.next, f"batch {seq} came, but batch {self.next} was expected"
        self.next += 1
        timestamp, events, rank = msgpack.unpackb(payload)
        assert isinstance(timestamp, float) and rank == 0, (timestamp, rank)
        for event in events:
            self.events[event["type"]] += 1
            assert event["medium"] == "GPU", event
            for block_hash in event["block_hashes"]:
                key = event["group_idx"], block_hash
                self.copies[key] += 1 if event["type"] == "BlockStored" else -1
                assert self.copies[key] >= 0, f"{key} was removed and never stored"
            if event["type"] == "BlockStored":
                assert event["block_size"] == 16, event
                assert len(event["token_ids"]) % 16 == 0, event

    def catch_up(self):
        self.replay.send_multipart([b"", self.next.to_bytes(8, "big")])
        while True:
            assert self.replay.poll(10_000), "the replay stopped without an end marker"
            frames = self.replay.recv_multipart()
            assert len(frames) == 4 and frames[0] == b"", frames[:3]
            _, topic, seq, payload = frames
            if payload == b"":
                assert (topic, seq) == (b"", END), frames
                return
            assert topic == b"kv@0", topic
            self.replayed += 1
            self.apply(int.from_bytes(seq, "big"), payload)

    def follow(self):
        while self.next < BATCHES:
            assert self.live.poll(10_000), f"nothing came after batch {self.next - 1}"
            topic, seq, payload = self.live.recv_multipart()
            assert topic == b"kv@0", topic
            seq = int.from_bytes(seq, "big")
            if seq < self.next or any(begin <= seq < end for begin, end in LEFT_OUT):
                continue
            if seq > self.next:
                self.catch_up()
            if seq == self.next:
                self.apply(seq, payload)


def main():
    engine = subprocess.Popen(
        [sys.argv[1], "engine", "--endpoint", "tcp://127.0.0.1:0", "--replay-endpoint",
         "tcp://127.0.0.1:0", "--topic", "kv@0", "--speed", "200", "--blocks", "20000"],
        stderr=subprocess.PIPE, text=True)
    try:
        line = engine.stderr.readline()
        match = re.search(r"stream_listening stream=engine address=(\S+) replay=(\S+)", line)
        assert match, line
        reader = Reader(match[1], match[2])
        reader.catch_up()  # batches that were sent before the reader joined
        reader.follow()
    finally:
        engine.kill()
        engine.wait()
    assert reader.replayed > 60, reader.replayed
    assert reader.events["BlockStored"] > 100 and reader.events["BlockRemoved"] > 100, reader.events
    print(f"{reader.next} batches, {reader.replayed} of them replayed; {dict(reader.events)}; "
          f"{len({group for group, _ in reader.copies})} groups")


main()
