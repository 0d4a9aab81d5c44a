#!/usr/bin/env python3
"""Tests the router's relay with its readers. The test covers topics, filters of `kvcast tail`, statistics,
captures, redaction, `kvcast replay`, and a subscriber that never reads.
usage: relay_test.py KVCAST
# SPDX-License-Identifier: Apache-2.0
"""
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import msgpack
import zmq

KVCAST = sys.argv[1]
failures = 0
context = zmq.Context.instance()


def check(claim, condition, detail=""):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {claim} {detail}")


def stored(first, group, medium, count=2):
    return {"type": "BlockStored", "block_hashes": list(range(first, first + count)),
            "parent_block_hash": None, "token_ids": [4711] * (16 * count), "block_size": 16,
            "lora_id": None, "medium": medium, "lora_name": "secret-adapter", "group_idx": group,
            "extra_keys": [["secret-salt"]] * count, "kv_cache_spec_kind": "full_attention"}


class Engine:
    """Publishes the same kinds of batches repeatedly, numbered from 0, and answers replay requests."""

    def __init__(self, rank):
        self.rank = rank
        self.pub, self.router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
        self.pub.sndhwm = 0
        self.endpoint = f"tcp://127.0.0.1:{self.pub.bind_to_random_port('tcp://127.0.0.1')}"
        self.replay = f"tcp://127.0.0.1:{self.router.bind_to_random_port('tcp://127.0.0.1')}"
        self.log, self.open = [], True
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while self.open:
            seq = len(self.log)
            events = [stored(seq * 10, 0, "GPU"), stored(seq * 10, 1, "GPU"), stored(seq * 10, 0, "CPU"),
                      {"type": "BlockRemoved", "block_hashes": [seq * 10], "medium": "GPU", "group_idx": 1}]
            if seq % 5 == 4:
                events.append({"type": "AllBlocksCleared"})
            payload = msgpack.packb([float(seq), events, self.rank])
            self.log.append(payload)
            self.pub.send_multipart([b"kv", seq.to_bytes(8, "big"), payload])
            while self.router.poll(20):
                peer, _, start = self.router.recv_multipart()
                for i in range(int.from_bytes(start, "big"), len(self.log)):
                    self.router.send_multipart([peer, b"", b"kv", i.to_bytes(8, "big"), self.log[i]])
                self.router.send_multipart([peer, b"", b"", b"\xff" * 8, b""])

    def close(self):
        self.open = False
        self.thread.join()


engines = [Engine(0), Engine(3)]
router = subprocess.Popen(
    [KVCAST, "router", "--http", "127.0.0.1:0", "--relay", "tcp://127.0.0.1:0",
     "--source", f"w.0={engines[0].endpoint},{engines[0].replay},model=llama-3.1",
     "--source", f"w1={engines[1].endpoint},{engines[1].replay},model=qwen,data_parallel_rank=3"],
    stderr=subprocess.PIPE, text=True)


def await_line(stream, pattern):
    """Returns the first group of the first line that has the pattern."""
    for line in stream:
        if match := re.search(pattern, line):
            return match.group(1)
    raise AssertionError(f"no line with {pattern}")


RELAY = await_line(router.stderr, r"stream_listening stream=relay address=(\S+)")
port = int(await_line(router.stderr, r"http_listening .*http://[^:]+:(\d+)"))


def tail(*flags, endpoint=RELAY):
    run = subprocess.run([KVCAST, "tail", endpoint, *flags], capture_output=True, text=True, timeout=60)
    check(f"tail {flags}", run.returncode == 0, run.stderr)
    return run.stdout


def batches(*flags, endpoint=RELAY):
    return [json.loads(line) for line in tail("--json", *flags, endpoint=endpoint).splitlines()]


# Topics and identity.
seen = batches("--count", "60")
topics = {batch["topic"] for batch in seen}
check("topics name model, worker, rank, tier and group", {
    "kv.llama-3%2E1.w%2E0.0.GPU.0", "kv.llama-3%2E1.w%2E0.0.CPU.0", "kv.qwen.w1.3.GPU.1",
    "kv.qwen.w1.3.GPU.-"} <= topics, topics)
for batch in seen:
    parts = batch["topic"].split(".")
    source = engines[0] if parts[3] == "0" else engines[1]
    original = msgpack.unpackb(source.log[int(batch["ts"])], strict_map_key=False)
    expected = [event for event in original[1]
                if event.get("medium", "GPU") == parts[4] and str(event.get("group_idx", "-")) == parts[5]]
    check("a batch has exactly the worker's events that belong to the topic", [e["type"] for e in batch["events"]] ==
          [e["type"] for e in expected] and [e.get("block_hashes") for e in batch["events"]] ==
          [e.get("block_hashes") for e in expected], (batch["topic"], batch["events"]))

numbers = {topic: [batch["seq"] for batch in seen if batch["topic"] == topic] for topic in topics}
for topic, own in numbers.items():
    check("the numbers of a topic have no gaps", own == list(range(own[0], own[0] + len(own))), (topic, own))

# Filters, each alone and all together.
for flags, test in [
        (["--model", "llama-3.1"], lambda b, e: ".llama-3%2E1." in b["topic"]),
        (["--worker", "w1"], lambda b, e: ".w1." in b["topic"]),
        (["--rank", "3"], lambda b, e: b["data_parallel_rank"] == 3),
        (["--tier", "cpu"], lambda b, e: e.get("medium") == "CPU"),
        (["--group", "1"], lambda b, e: e.get("group_idx", 1) == 1),
        (["--model", "qwen", "--worker", "w1", "--rank", "3", "--tier", "GPU", "--group", "0"],
         lambda b, e: b["topic"] in ("kv.qwen.w1.3.GPU.0", "kv.qwen.w1.3.GPU.-"))]:
    got = batches("--count", "8", *flags)
    check(f"filter {flags}", got and all(test(b, e) for b in got for e in b["events"]), got[:1])
direct = batches("--count", "5", "--tier", "CPU", endpoint=engines[0].endpoint)
check("--tier also filters an engine's own stream",
      all(e["medium"] == "CPU" for b in direct for e in b["events"]))

# Statistics.
stats = json.loads(tail("--stats", "--json", "--count", "40").splitlines()[-1])
check("statistics by topic", stats["batches"] == 40 and
      stats["topics"]["kv.qwen.w1.3.GPU.0"]["stored_blocks"] > 0, stats)
check("no topic has a gap", all(topic["gaps"] == 0 for topic in stats["topics"].values()), stats)
check("statistics as a text table", "kv.qwen.w1.3.GPU.0" in tail("--stats", "--count", "20"))

with tempfile.TemporaryDirectory() as folder:
    # A replay of a capture publishes the same batches.
    path = os.path.join(folder, "capture")
    recorded = batches("--count", "20", "--record", path)

    def replayed(file, flags):
        replay = subprocess.Popen([KVCAST, "replay", file, "--endpoint", "tcp://127.0.0.1:0",
                                   "--speed", "0", "--delay", "1"], stderr=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        endpoint = await_line(replay.stderr, r"stream_listening stream=replay address=(\S+)")
        got = batches(*flags, endpoint=endpoint)
        check("the replay ends with exit code 0", replay.wait(timeout=30) == 0)
        return got

    check("a replay publishes the recorded batches",
          replayed(path, ["--count", "20"]) == recorded)
    # A subscriber sends more than 64 KiB of subscriptions.
    replay = subprocess.Popen([KVCAST, "replay", path, "--endpoint", "tcp://127.0.0.1:0", "--delay", "600"],
                              stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    greedy = context.socket(zmq.SUB)
    ended = greedy.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    for number in range(40):
        greedy.subscribe(number.to_bytes(4, "big") * 750)
    greedy.connect(await_line(replay.stderr, r"stream_listening stream=replay address=(\S+)"))
    check("a replay ends the connection of a subscriber that sends too many bytes", ended.poll(20000))
    greedy.disable_monitor()
    greedy.close(0)
    replay.send_signal(signal.SIGTERM)
    replay.wait(timeout=30)
    # A redacted capture contains no token ids, adapters or salts. A replay publishes all other fields.
    path = os.path.join(folder, "redacted")
    shown = batches("--count", "20", "--redact", "--record", path)
    with open(path, "rb") as file:
        blob = file.read()
    check("a redacted capture contains no token ids, adapters or salts",
          b"secret" not in blob and msgpack.packb(4711) * 4 not in blob)
    check("control: a capture without redaction contains token ids, adapters and salts",
          b"secret" in open(os.path.join(folder, "capture"), "rb").read() and
          msgpack.packb(4711) * 4 in open(os.path.join(folder, "capture"), "rb").read())
    check("the output of tail --redact contains no token ids and no secrets",
          "4711" not in json.dumps(shown) and "secret" not in json.dumps(shown))
    check("a replay publishes the batches of a redacted capture", replayed(path, ["--count", "20"]) == shown)
    # A replay of a truncated capture publishes the batches before the cut.
    with open(path, "wb") as file:
        file.write(blob[:-7])
    check("a replay of a truncated capture publishes the batches before the cut",
          replayed(path, ["--count", "19"]) == shown[:19])
    with open(path, "wb") as file:
        file.write(b"something else")
    bad = subprocess.run([KVCAST, "replay", path], capture_output=True, text=True, timeout=20)
    check("a file that is not a capture: one line on stderr, exit code 1",
          bad.returncode == 1 and bad.stderr.count("\n") == 1, bad.stderr)

# One subscriber never reads. Ingest and queries continue, and do not wait for this subscriber.
stuck = context.socket(zmq.SUB)
stuck.rcvhwm = 1
stuck.setsockopt(zmq.RCVBUF, 1024)
stuck.subscribe(b"")
stuck.connect(RELAY)


def state():
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request("GET", "/v1/state")
    return json.loads(connection.getresponse().read())["workers"]


target = len(engines[0].log) + 100
while len(engines[0].log) < target:
    time.sleep(0.02)
deadline = time.time() + 20
while state()[0]["next_seq"] < target and time.time() < deadline:
    time.sleep(0.02)
check("ingest does not wait for a subscriber", state()[0]["next_seq"] >= target and state()[0]["lost"] == 0)
stuck.close(0)
router.send_signal(signal.SIGTERM)
check("the router ends", router.wait(timeout=20) == 0)
for engine in engines:
    engine.close()
print("all relay checks passed" if failures == 0 else f"{failures} checks failed")
sys.exit(failures > 0)
