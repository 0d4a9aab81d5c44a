#!/usr/bin/env python3
"""Compares the cost of KvcastEventPublisher (kvcast.vllm) with vLLM's own publisher, in a Python that has vLLM.

The main thread acts as the scheduler: it computes, and publishes one batch per step. Publishers alternate, in one
process. Figures in microseconds per batch, medians of the rounds:
    hand_over   time of publish() on the scheduler's thread: median of the calls. The scheduler computes after each
                call, so both publishers start from the same caches
    gil         time that the scheduler's thread waits for the GIL: wall time minus CPU time minus the time in the run
                queue of the kernel. The share that a run without a publisher has of its wall time is subtracted
    thread_cpu  CPU time of the publisher's Python thread (it includes the time without the GIL)
    all_cpu     CPU time of the process minus the CPU time of the main thread
`ratio` is kvcast divided by vLLM. The switch interval of the GIL is one step.

usage: vllm_publisher_bench.py [--rounds N] [--batches N] [--blocks N] [--step-us N] [--idle]
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import statistics
import sys
import threading
import time

BLOCK = 16


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=2000, help="batches of one round")
    parser.add_argument("--blocks", type=int, default=8, help="blocks that a batch stores, and blocks that it removes")
    parser.add_argument("--step-us", type=int, default=500, help="time that the scheduler computes between two batches")
    parser.add_argument("--idle", action="store_true", help="the scheduler sleeps in each step, as if it waited for a GPU; "
                        "no figure `gil`")
    return parser.parse_args()


def batches_of(options: argparse.Namespace) -> list:
    from vllm.distributed.kv_events import BlockRemoved, BlockStored, KVEventBatch

    made = []
    for number in range(options.batches):
        first = number * options.blocks
        hashes = [(first + i) * 0x9E3779B97F4A7C15 % 2**64 for i in range(options.blocks)]
        tokens = [(first + i) % 150_000 for i in range(options.blocks * BLOCK)]
        made.append(KVEventBatch(ts=time.time(), events=[
            BlockRemoved(hashes[::-1], "GPU", 0),
            BlockStored(hashes, None, tokens, BLOCK, None, "GPU", None, [None] * options.blocks, 0, "full_attention")]))
    return made


def run_delay_s() -> float:
    """Time in which this thread was ready to run and did not run."""
    with open(f"/proc/self/task/{threading.get_native_id()}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1]) * 1e-9


def step(seconds: float, idle: bool) -> None:
    if idle:
        return time.sleep(seconds)
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


def measure(publisher, batches: list, step_s: float, idle: bool) -> dict:
    """Publishes the batches. `publisher` None: only steps."""
    clock = time.pthread_getcpuclockid(publisher._thread.ident) if publisher else None
    thread = time.clock_gettime(clock) if clock else 0.0
    wall, cpu, all_cpu, delay = time.perf_counter(), time.thread_time(), time.process_time(), run_delay_s()
    calls = []
    for batch in batches:
        step(step_s, idle)
        if publisher:
            began = time.perf_counter_ns()
            publisher.publish(batch)
            calls.append(time.perf_counter_ns() - began)
    while publisher and waiting(publisher):
        step(step_s, idle)
    wall, delay = time.perf_counter() - wall, run_delay_s() - delay
    cpu, all_cpu = time.thread_time() - cpu, time.process_time() - all_cpu
    us_per_batch = 1e6 / len(batches)
    measured = {"gil": (wall - cpu - delay) * us_per_batch, "wall": wall * us_per_batch}
    if publisher:
        measured |= {"hand_over": statistics.median(calls) * 1e-3,
                     "thread_cpu": (time.clock_gettime(clock) - thread) * us_per_batch,
                     "all_cpu": (all_cpu - cpu) * us_per_batch}
    return measured


def waiting(publisher) -> bool:
    """Whether batches are queued. The check takes no lock and keeps the GIL."""
    if hasattr(publisher, "_event_queue"):
        return len(publisher._event_queue.queue) > 0
    return not publisher._queue.empty()


def main() -> None:
    options = parse()
    from vllm.distributed.kv_events import ZmqEventPublisher

    from kvcast.vllm import KvcastEventPublisher

    sys.setswitchinterval(options.step_us * 1e-6)
    endpoints = {"endpoint": "tcp://127.0.0.1:*", "replay_endpoint": "tcp://127.0.0.1:*", "topic": "kv-events",
                 "buffer_steps": (options.rounds + 1) * options.batches}
    publishers = {"vllm": ZmqEventPublisher(0, **endpoints), "kvcast": KvcastEventPublisher(0, **endpoints), "none": None}
    rounds = {name: [] for name in publishers}
    for number in range(options.rounds + 1):
        for name, publisher in publishers.items():
            measured = measure(publisher, batches_of(options), options.step_us * 1e-6, options.idle)
            if number > 0:  # the first round warms up
                rounds[name].append(measured)
    for own in ("vllm", "kvcast"):
        for measured, alone in zip(rounds[own], rounds["none"]):
            measured["gil"] -= alone["gil"] / alone["wall"] * measured["wall"]
    if options.idle:
        for measured in sum(rounds.values(), []):
            del measured["gil"]
    result = {name: {figure: round(statistics.median(each[figure] for each in measured), 2) for figure in measured[0]}
              for name, measured in rounds.items()}
    result["ratio"] = {figure: round(result["kvcast"][figure] / max(value, 1e-9), 2)
                       for figure, value in result["vllm"].items()}
    print(json.dumps(vars(options) | result))
    for publisher in publishers.values():
        if publisher:
            publisher.shutdown()


if __name__ == "__main__":
    main()
