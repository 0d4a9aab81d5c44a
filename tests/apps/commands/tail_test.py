#!/usr/bin/env python3
"""A publisher sends known batches, and `kvcast tail` prints them. The test covers text and JSON
lines, the filters, --count, a payload that is not a batch, an event that cannot be decoded, texts with control
characters, a frame that is too large, an invalid endpoint, Ctrl-C, and an output that cannot be written.
usage: tail_test.py KVCAST
# SPDX-License-Identifier: Apache-2.0
"""
import json
import signal
import subprocess
import sys
import threading
import time

import msgpack
import zmq

kvcast = sys.argv[1]
failures = 0

STORED = {"type": "BlockStored", "block_hashes": [11, 12], "parent_block_hash": None,
          "token_ids": list(range(32)), "block_size": 16, "lora_id": None, "medium": "GPU",
          "lora_name": None, "extra_keys": [None, None], "group_idx": 1,
          "kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 64}
REMOVED = {"type": "BlockRemoved", "block_hashes": [11], "medium": "GPU", "group_idx": 1}
CLEARED = {"type": "AllBlocksCleared"}


def batch(*events):
    return msgpack.packb([1.5, list(events), 3], use_single_float=False)


class Source:
    """Publishes the messages repeatedly until it is closed, because tail may subscribe late."""

    def __init__(self, messages):
        self.socket = zmq.Context.instance().socket(zmq.PUB)
        self.socket.linger = 0
        self.port = self.socket.bind_to_random_port("tcp://127.0.0.1")
        self.messages = messages
        self.open = True
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        seq = 0
        while self.open:
            for topic, payload in self.messages:
                self.socket.send_multipart([topic, seq.to_bytes(8, "big"), payload])
                seq += 1
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open = False
        self.thread.join()
        self.socket.close()


def tail(messages, *flags):
    with Source(messages) as source:
        return subprocess.run([kvcast, "tail", f"tcp://127.0.0.1:{source.port}", *flags],
                              capture_output=True, text=True, timeout=60)


def check(claim, condition, run):
    global failures
    if condition:
        return
    failures += 1
    print(f"FAILED: {claim}\n  code {run.returncode}\n  out {run.stdout!r}\n  err {run.stderr!r}")


run = tail([(b"kv", batch(STORED, REMOVED, CLEARED))], "--count", "1")
lines = run.stdout.splitlines()
check("text: one header line, and one line per event", run.returncode == 0 and len(lines) == 4, run)
check("text: the header line has topic, rank and event count",
      lines[0].split()[0] == "kv" and "rank 3" in lines[0] and "3 events" in lines[0], run)
check("text: a stored line has group, kind, window, tier and first hash",
      all(word in lines[1] for word in
          ["stored", "group 1", "sliding_window/64", "GPU", "2 blocks of 16", "first 11"]), run)
check("text: removed and cleared", "removed" in lines[2] and "cleared" in lines[3], run)

run = tail([(b"kv", batch(STORED, CLEARED))], "--count", "2", "--json")
objects = [json.loads(line) for line in run.stdout.splitlines()]
check("json: one object per batch", run.returncode == 0 and len(objects) == 2, run)
check("json: consecutive sequence numbers", objects[1]["seq"] == objects[0]["seq"] + 1, run)
check("json: the event's fields",
      objects[0]["events"][0]["block_hashes"] == [11, 12] and
      objects[0]["events"][0]["group_idx"] == 1 and objects[0]["topic"] == "kv", run)

run = tail([(b"other", batch(CLEARED)), (b"kv.a", batch(REMOVED))], "--topic", "kv", "--count", "3",
           "--json")
topics = {json.loads(line)["topic"] for line in run.stdout.splitlines()}
check("topic: batches of other topics are not printed",
      run.returncode == 0 and topics == {"kv.a"}, run)

OTHER_TIER = dict(REMOVED, medium="CPU", block_hashes=[21])
OTHER_GROUP = dict(REMOVED, group_idx=0, block_hashes=[31])
NO_GROUP = {"type": "BlockRemoved", "block_hashes": [41], "medium": "GPU"}
MIXED = [(b"kv", batch(REMOVED, OTHER_TIER, OTHER_GROUP, NO_GROUP)), (b"kv", msgpack.packb([1.5, [REMOVED], 4]))]


def removed_with(*flags):
    """Returns the first hash of each printed event of MIXED (two batches), and the run."""
    run = tail(MIXED, "--json", "--count", "2", *flags)
    return {event["block_hashes"][0] for line in run.stdout.splitlines()
            for event in json.loads(line)["events"]}, run


for flags, expected in [((), {11, 21, 31, 41}), (("--group", "1"), {11, 21}), (("--group", "0"), {31, 41}),
                        (("--tier", "cpu"), {21}), (("--tier", "GPU", "--group", "1"), {11}),
                        (("--rank", "4"), {11}), (("--rank", "3", "--tier", "CPU"), {21})]:
    hashes, run = removed_with(*flags)
    check(f"filter {flags}: {expected}, not {hashes}", run.returncode == 0 and hashes == expected, run)

run = tail([(b"kv", b"\xc1 no batch"), (b"kv", batch(CLEARED))], "--count", "2")
check("a payload that is not a batch gives one line on stderr, and the next batch is printed",
      run.returncode == 0 and "kvcast: seq" in run.stderr and "cleared" in run.stdout, run)

bad = dict(REMOVED, block_hashes="no list")
run = tail([(b"kv", batch(bad, CLEARED))], "--count", "1")
check("an event that cannot be decoded is counted, and the next event is printed",
      "events that could not be decoded: 1" in run.stdout and "cleared" in run.stdout, run)

# tail escapes control characters (ESC, C1, CR, LF, NUL), and U+202E, which reverses the direction of text. So a sender
# cannot control the terminal or forge a line.
HOSTILE = "\x1b]0;title\x07\x1b[2J\r\nforged\x00\u009b31m\u202e\\"
hostile = dict(STORED, medium=HOSTILE, kv_cache_spec_kind=HOSTILE, lora_name=HOSTILE)
hostile_topic = HOSTILE.encode()
PLAIN = set(range(0x20, 0x7f)) | {0x0a}
for flags, expected_lines in [((), 4), (("--json",), 2), (("--stats",), None), (("--stats", "--json"), None)]:
    run = tail([(hostile_topic, batch(hostile))], "--count", "2", *flags)
    check(f"{flags}: only printable ASCII is printed", set(run.stdout.encode()) <= PLAIN, run)
    check(f"{flags}: no forged line",
          run.returncode == 0 and not any(line.startswith("forged") for line in run.stdout.splitlines()), run)
    if expected_lines:
        check(f"{flags}: the number of lines", len(run.stdout.splitlines()) == expected_lines, run)
    if flags == ("--json",):
        check("json: the text is complete", json.loads(run.stdout.splitlines()[0])["topic"] == HOSTILE, run)

# tail closes a connection that sends a frame of 200 MiB, and does not keep the frame in memory. tail follows another
# publisher at the same time.
with Source([(b"kv", b"x" * (200 << 20))]) as huge, Source([(b"kv", batch(CLEARED))]) as good:
    process = subprocess.Popen([kvcast, "tail", f"tcp://127.0.0.1:{huge.port}", f"tcp://127.0.0.1:{good.port}"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    printed_lines = [process.stdout.readline() for _ in range(200)]
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        used = int(next(line for line in status if line.startswith("VmHWM")).split()[1])
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
run = subprocess.CompletedProcess([], process.returncode, "".join(printed_lines), err)
check("an oversized frame does not disturb another publisher", "cleared" in run.stdout, run)
check(f"an oversized frame is not held in memory: {used} KiB", used < 150 << 10, run)

run = subprocess.run([kvcast, "tail", "nonsense"], capture_output=True, text=True, timeout=60)
check("an invalid endpoint: one line on stderr, exit code 1",
      run.returncode == 1 and run.stderr.count("\n") == 1 and "nonsense" in run.stderr, run)

# The subscription shows that tail follows the endpoint. No message arrives.
silent = zmq.Context.instance().socket(zmq.XPUB)
silent.linger = 0
silent_port = silent.bind_to_random_port("tcp://127.0.0.1")
process = subprocess.Popen([kvcast, "tail", f"tcp://127.0.0.1:{silent_port}"], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
subscribed = silent.poll(60000) != 0
process.send_signal(signal.SIGINT)
out, err = process.communicate(timeout=60)
silent.close()
check("tail subscribes", subscribed, subprocess.CompletedProcess([], process.returncode, out, err))
check("Ctrl-C: exit code 130", process.returncode == 130,
      subprocess.CompletedProcess([], process.returncode, out, err))


def close_output(port, before):
    """Starts tail, calls before(process), closes the pipe on tail's stdout, and waits for the end of tail."""
    process = subprocess.Popen([kvcast, "tail", f"tcp://127.0.0.1:{port}"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    seen = before(process)
    process.stdout.close()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
    return subprocess.CompletedProcess([], process.wait(), seen, process.communicate()[1])


# As in `kvcast tail ... | head -1`.
with Source([(b"kv", batch(CLEARED))]) as source:
    run = close_output(source.port, lambda process: process.stdout.readline())
check("a closed pipe ends tail without a message on stderr",
      run.stdout and (run.returncode, run.stderr) == (128 + signal.SIGPIPE, ""), run)

silent = zmq.Context.instance().socket(zmq.XPUB)
silent.linger = 0
run = close_output(silent.bind_to_random_port("tcp://127.0.0.1"), lambda _: silent.poll(60000))
silent.close()
check("a closed pipe ends tail while no batch arrives",
      run.stdout and (run.returncode, run.stderr) == (128 + signal.SIGPIPE, ""), run)

with Source([(b"kv", batch(CLEARED))]) as source, open("/dev/full", "w", encoding="ascii") as full:
    for flags in [(), ("--count", "1")]:
        run = subprocess.run([kvcast, "tail", f"tcp://127.0.0.1:{source.port}", *flags], stdout=full,
                             stderr=subprocess.PIPE, text=True, timeout=60)
        check(f"{flags}: an output that cannot be written: one line on stderr, exit code 1",
              run.returncode == 1 and run.stderr == "kvcast: stdout: cannot write\n", run)

print("all tail checks passed" if failures == 0 else f"{failures} checks failed")
sys.exit(failures > 0)
