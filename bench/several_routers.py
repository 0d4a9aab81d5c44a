#!/usr/bin/python3
"""Compares several router processes that share their loads with one router: `kvcast router` and `kvcast engine`
processes on this machine, and a trace in real time.

usage: bench/several_routers.py KVCAST [--workload chat|shared|sessions] [--routers 1,2,4,8] [--engines 16]
                                [--no-gauges] [--kill]
The requests go to the routers in turn. `chat` is the bundled trace, with more requests per second. `shared`: each
prompt is one of 48 system prompts, followed by its own text. `sessions`: conversations of 8 turns. With --no-gauges,
each number of routers also runs without the exchange of loads.
With --kill, each number of routers above one also runs once while one router is killed in the middle (SIGKILL); the
other routers then get its requests, and its requests in flight are never reported to a router as ended.
A run starts new engines. The columns: the mean and the 90th percentile of the time to the first token, the
reused share of the prompt tokens, the most computed prompt tokens and the most requests of one engine, each divided by
the mean of the engines, and the share of requests whose predicted reuse is equal to the reuse of the engine.
Needs pyzmq (Debian: python3-zmq).
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import array
import collections
import concurrent.futures
import http.client
import json
import pathlib
import queue
import random
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse

import zmq

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
from ports import free_ports  # noqa: E402

BLOCK_TOKENS = 512  # of a row of the trace
PATIENCE_S = 60
VOCABULARY = 128000


def chat(requests):
    """The first rows of the bundled trace, three times as fast. A step of the trace is some seconds long: its requests
    are spread evenly up to the next step."""
    path = ROOT / "examples/traces/mooncake_conversation_1200.jsonl"
    rows = [json.loads(line) for line in path.read_text("ascii").splitlines()[:requests]]
    times = [row["timestamp"] / 3000 for row in rows]
    steps = sorted(set(times))
    gaps = dict(zip(steps, (after - step for step, after in zip(steps, steps[1:]))))
    counts, seen = collections.Counter(times), collections.Counter()
    for row, time_s in zip(rows, times):
        row["arrival_s"] = time_s + gaps.get(time_s, 0) * seen[time_s] / counts[time_s]
        seen[time_s] += 1
    return rows


def shared(requests):
    """Poisson arrivals, 10 per second. A system prompt has 16 blocks. The frequency of prompt i (from 0) is
    proportional to 1 / (i + 1)."""
    random_of = random.Random(1)
    rows, arrival_s = [], 0
    for number in range(requests):
        arrival_s += random_of.expovariate(10)
        (system,) = random_of.choices(range(48), weights=[1 / (i + 1) for i in range(48)])
        ids = [1000 * system + i for i in range(16)] + [10**6 + 10 * number + i for i in range(random_of.randint(1, 4))]
        rows.append({"arrival_s": arrival_s, "hash_ids": ids, "input_length": BLOCK_TOKENS * len(ids),
                     "output_length": random_of.randint(50, 250)})
    return rows


def sessions(requests):
    """Conversations that start every 0.8 s on average. A turn adds 2 blocks. The next turn comes 4 to 12 s later."""
    random_of = random.Random(2)
    rows, start_s = [], 0
    for conversation in range(requests // 8):
        start_s += random_of.expovariate(1.25)
        arrival_s, blocks = start_s, random_of.randint(4, 16)
        for _ in range(8):
            rows.append({"arrival_s": arrival_s, "hash_ids": [1000 * conversation + i for i in range(blocks)],
                         "input_length": BLOCK_TOKENS * blocks, "output_length": random_of.randint(50, 250)})
            arrival_s += random_of.uniform(4, 12)
            blocks += 2
    return rows


# The rows, and the prompt tokens that an engine computes per second.
WORKLOADS = {"chat": (chat, 10000), "shared": (shared, 2000), "sessions": (sessions, 2500)}


def prompt_of(row):
    """Equal blocks have equal tokens in all rows."""
    tokens = []
    for block in row["hash_ids"]:
        tokens += random.Random(block).choices(range(VOCABULARY), k=BLOCK_TOKENS)
    return tokens[:row["input_length"]]


class Engines:
    """Engine processes, and the connection that gives them requests. For one thread."""

    def __init__(self, program, count, flags):
        self.socket = zmq.Context.instance().socket(zmq.ROUTER)
        self.socket.setsockopt(zmq.LINGER, 0)
        control = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.processes = [subprocess.Popen(
            [program, "engine", "--name", f"engine-{i}", "--control", control, "--endpoint", "tcp://127.0.0.1:0",
             "--replay-endpoint", "tcp://127.0.0.1:0", "--log-level", "error", *flags]) for i in range(count)]
        self.endpoints = {}
        end = time.monotonic() + PATIENCE_S
        while len(self.endpoints) < count:
            if time.monotonic() > end:
                sys.exit("the engines did not start")
            for name, report in self.reports(100):
                self.endpoints[name] = (report["endpoint"], report["replay_endpoint"])

    def reports(self, wait_ms):
        """Yields (engine, report) of the messages that arrived."""
        while self.socket.poll(wait_ms):
            name, report = self.socket.recv_multipart()
            yield name.decode(), json.loads(report)
            wait_ms = 0

    def send(self, name, number, output, tokens):
        header = json.dumps({"type": "request", "number": number, "output": output})
        self.socket.send_multipart([name.encode(), header.encode(), array.array("q", tokens).tobytes()])

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()
        self.socket.close()


class Router:
    """A router process. A thread sends its requests one after another over one connection."""

    def __init__(self, program, number, endpoints, peers):
        flags = ["--http", "127.0.0.1:0", "--log-format", "json", "--router-name", f"router-{number}"]
        for name, (endpoint, replay) in endpoints.items():
            flags += ["--source", f"{name}={endpoint},{replay}"]
        if peers:
            flags += ["--load-endpoint", peers[number]]
            for peer in peers:
                flags += ["--load-peer", peer]
        self.process = subprocess.Popen([program, "router", *flags], stderr=subprocess.PIPE, text=True)
        self.address = None
        for line in self.process.stderr:
            entry = json.loads(line)
            if entry["event"] == "http_listening":
                self.address = urllib.parse.urlsplit(entry["address"]).netloc
                break
        if self.address is None:
            sys.exit("a router did not start")
        self.log = threading.Thread(target=self.process.stderr.read)
        self.log.start()
        self.connection = http.client.HTTPConnection(self.address, timeout=PATIENCE_S)
        self.worker = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self.alive = True

    def request(self, method, path, body=None):
        self.connection.request(method, path, json.dumps(body) if body else None)
        reply = self.connection.getresponse()
        return reply.status, json.loads(reply.read())

    def is_ready(self, engines, peers):
        _, state = self.worker.submit(self.request, "GET", "/v1/state").result()
        synced = sum(worker["state"] == "synced" for worker in state["workers"])
        return synced == engines and state.get("peers", {}).get("routers", 0) == peers

    def kill(self):
        self.alive = False
        self.process.kill()
        self.process.wait()
        self.log.join()
        self.process.stderr.close()

    def end(self):
        self.worker.shutdown(wait=True, cancel_futures=True)
        self.connection.close()
        self.kill()


class Run:
    """One run of the trace."""

    def __init__(self, options, routers, gauges, kill):
        make_rows, prefill_rate = WORKLOADS[options.workload]
        prefill_rate = options.prefill_rate or prefill_rate
        self.rows = sorted(make_rows(options.requests), key=lambda row: row["arrival_s"])
        self.kill_at = len(self.rows) // 2 if kill else None
        flags = ["--model", options.model, "--prefill-rate", str(prefill_rate)]
        self.engines = Engines(options.kvcast, options.engines, flags)
        peers = [f"tcp://127.0.0.1:{port}" for port in free_ports(routers)] if gauges and routers > 1 else []
        self.peers = len(peers) - 1 if peers else 0  # of each router
        self.routers = [Router(options.kvcast, i, self.engines.endpoints, peers) for i in range(routers)]
        self.decisions = queue.SimpleQueue()
        self.sent, self.first_tokens, self.router_of, self.predicted = {}, {}, {}, {}
        self.reuse, self.finished, self.equal, self.routed_again = {}, set(), 0, 0
        self.load, self.requests = collections.Counter(), collections.Counter()
        self.views = []  # of the decisions: (time, number of other routers that counted)
        self.killed = None  # time

    def result(self):
        try:
            self.await_ready(self.peers)
            self.play()
            self.await_ready(self.peers - (self.killed is not None))
        finally:
            for router in self.routers:
                router.end()
            self.engines.end()
        waits = sorted(self.first_tokens[number] - self.sent[number] for number in self.first_tokens)
        mean = lambda counter: sum(counter.values()) / len(self.engines.endpoints)  # noqa: E731
        prompts = sum(row["input_length"] for row in self.rows)
        return {"ttft_mean_ms": 1e3 * statistics.fmean(waits), "ttft_p90_ms": 1e3 * waits[len(waits) * 9 // 10],
                "reused": sum(self.reuse.values()) / prompts,
                "tokens_imbalance": max(self.load.values()) / mean(self.load),
                "requests_imbalance": max(self.requests.values()) / mean(self.requests),
                "equal": self.equal / len(self.rows), "requests": len(waits), "routed_again": self.routed_again,
                "peers": statistics.fmean(peers for _, peers in self.views),
                # The time for which decisions counted the load of the killed router.
                "dead_counted_s": max((decided - self.killed for decided, peers in self.views
                                       if self.killed and peers == self.peers), default=0)}

    def await_ready(self, peers):
        """Waits until each living router follows all engines and counts this number of other routers."""
        end = time.monotonic() + PATIENCE_S
        living = [router for router in self.routers if router.alive]
        while not all(router.is_ready(len(self.engines.endpoints), peers) for router in living):
            if time.monotonic() > end:
                sys.exit("the routers do not follow all engines and routers")
            time.sleep(0.05)

    def play(self):
        start = time.monotonic()
        number = 0
        last_report = start
        while len(self.finished) < len(self.rows):
            while number < len(self.rows) and time.monotonic() - start >= self.rows[number]["arrival_s"]:
                if number == self.kill_at:
                    self.killed = time.monotonic()
                    self.routers[-1].kill()
                self.ask(number)
                number += 1
            for name, report in self.engines.reports(2):
                self.take(name, report)
                last_report = time.monotonic()
            while not self.decisions.empty():
                self.start(*self.decisions.get())
            if number == len(self.rows) and time.monotonic() - last_report > PATIENCE_S:
                sys.exit(f"{number - len(self.finished)} requests do not end")

    def ask(self, number):
        """Requests a decision from the router whose turn it is."""
        living = [router for router in self.routers if router.alive]
        router = self.router_of[number] = living[number % len(living)]
        self.sent.setdefault(number, time.monotonic())
        router.worker.submit(self.decide, router, number)

    def decide(self, router, number):
        tokens = prompt_of(self.rows[number])
        try:
            status, reply = router.request("POST", "/v1/route", {"tokens": tokens, "request_id": f"request-{number}"})
        except (OSError, http.client.HTTPException):
            return self.decisions.put((number, None, None))
        if status != 200:
            sys.exit(f"/v1/route: {status} {reply}")
        return self.decisions.put((number, reply, tokens))

    def start(self, number, decision, tokens):
        if decision is None:  # the router was killed
            self.routed_again += 1
            return self.ask(number)
        name = decision["worker"]
        self.predicted[number] = next(c for c in decision["candidates"] if c["name"] == name)["reusable_tokens"]
        self.views.append((time.monotonic(), decision.get("peers", {}).get("routers", 0)))
        return self.engines.send(name, number, self.rows[number]["output_length"], tokens)

    def take(self, name, report):
        number = report.get("number")
        if report["type"] == "admitted" and report["first"]:
            self.reuse[number] = report["hit"]
            self.equal += report["hit"] == self.predicted[number]
            self.load[name] += report["prompt"] - report["hit"]
            self.requests[name] += 1
            self.feed(number, {"event": "admitted", "reused_tokens": report["hit"], "next_seq": report["published"]})
        elif report["type"] == "first_token":
            self.first_tokens[number] = time.monotonic()
            self.feed(number, {"event": "first_token"})
        elif report["type"] in ("finished", "refused"):
            self.finished.add(number)
            self.feed(number, {"event": "finished"})

    def feed(self, number, report):
        router = self.router_of[number]
        if router.alive:
            router.worker.submit(self.post, router, {**report, "request_id": f"request-{number}"})

    @staticmethod
    def post(router, report):
        try:
            router.request("POST", "/v1/feedback", report)
        except (OSError, http.client.HTTPException):
            if router.alive:
                raise


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kvcast")
    parser.add_argument("--workload", choices=list(WORKLOADS), default="chat")
    parser.add_argument("--routers", default="1,2,4,8")
    parser.add_argument("--engines", type=int, default=16)
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--prefill-rate", type=int, help="prompt tokens that an engine computes per second")
    parser.add_argument("--model", default="hybrid")
    parser.add_argument("--no-gauges", action="store_true")
    parser.add_argument("--kill", action="store_true")
    options = parser.parse_args()
    for routers in (int(count) for count in options.routers.split(",")):
        kinds = [(True, False)]
        if routers > 1:
            kinds += [(False, False)] * options.no_gauges + [(True, True)] * options.kill
        for gauges, kill in kinds:
            result = Run(options, routers, gauges, kill).result()
            print(json.dumps({"workload": options.workload, "routers": routers, "gauges": gauges, "kill": kill,
                              **{key: round(value, 4) for key, value in result.items()}}), flush=True)


if __name__ == "__main__":
    main()
