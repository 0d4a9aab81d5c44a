#!/usr/bin/python3
"""A router ends after SIGTERM although clients and a source keep it busy. The load goes on until the router has ended.
Usage: stop_under_load_test.py KVCAST"""
# SPDX-License-Identifier: Apache-2.0
import contextlib
import http.client
import json
import os
import re
import signal
import sys
import threading
import time

import msgpack
import zmq

sys.path.insert(0, os.path.dirname(__file__))
from router_process import Router, check, finish, until  # noqa: E402

ended = threading.Event()
LARGE = json.dumps({"hashes": list(range(200_000))}).encode()


def repeat_in_thread(work):
    """Repeats the work in a thread until the router has ended. Connections may break."""
    def run():
        while not ended.is_set():
            with contextlib.suppress(OSError, http.client.HTTPException):
                work()
            time.sleep(0.001)
    thread = threading.Thread(target=run)
    thread.start()
    return thread


def ask():
    """A new connection with a large query."""
    client = http.client.HTTPConnection(*address, timeout=60)
    client.request("POST", "/v1/query", LARGE, {"Content-Type": "application/json"})
    client.getresponse().read()
    client.close()


def stall():
    """A client that begins a request and never ends it."""
    client = http.client.HTTPConnection(*address, timeout=60)
    client.connect()
    client.sock.sendall(b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
    client.sock.recv(1)  # until the router ends the connection


def stream():
    """A dashboard that reads slowly."""
    client = http.client.HTTPConnection(*address, timeout=60)
    client.request("GET", "/v1/events")
    reply = client.getresponse()
    while reply.read(1):
        time.sleep(0.01)


def batch(first, blocks):
    stored = ["BlockStored", list(range(first, first + blocks)), None, [], 16, None, "GPU"]
    return msgpack.packb([0.0, [stored], 0])


live = zmq.Context.instance().socket(zmq.PUB)
port = live.bind_to_random_port("tcp://127.0.0.1")
router = Router(sys.argv[1], "--source", f"busy=tcp://127.0.0.1:{port}")
address = router.url.removeprefix("http://").split(":")[0], int(router.url.rsplit(":", 1)[1])
log_reader = threading.Thread(target=router.process.stderr.read)
log_reader.start()
seq = 0


def publish():
    global seq
    live.send_multipart([b"", seq.to_bytes(8, "big"), batch(seq * 10_000, 10_000)])
    seq += 1


def total(name, label):
    """Returns the sum of the metric over all samples with this label."""
    samples = re.findall(rf"^{name}{{(.*)}} (\d+)", router.get("/metrics"), re.M)
    return sum(int(value) for labels, value in samples if label in labels)


threads = [repeat_in_thread(work) for work in [ask] * 4 + [stall] * 50 + [stream] * 4 + [publish]]
try:
    until("the router applies batches", lambda: total("kvcast_source_batches_total", 'worker="busy"') >= 10)
    until("the router answers queries", lambda: total("kvcast_http_requests_total", 'route="/v1/query"') >= 10)
    begin = time.monotonic()
    router.process.send_signal(signal.SIGTERM)
    check("the router ends while the load goes on", router.process.wait(timeout=60) == 0, router.process.returncode)
    print(f"ended {time.monotonic() - begin:.2f} s after SIGTERM")
finally:
    router.process.kill()
    ended.set()
    for thread in threads:
        thread.join()
    log_reader.join()
finish()
