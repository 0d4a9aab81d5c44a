#!/usr/bin/env python3
"""Compares the step time of a real vLLM engine under kvcast.vllm and under vLLM's own publisher, in a Python that has
vLLM.

An engine is a process with a tiny model on the CPU. For each run, its scheduler gets one of the two publishers, an
empty prefix cache, and the same requests, eight in flight. The runs of a pair follow each other, and each second pair
is in reverse order. A further process reads both streams. Figures in microseconds per step:
    step       wall time of EngineCore.step
    scheduler  wall time of Scheduler.schedule plus Scheduler.update_from_output, which publishes the batch
    cpu        CPU time of the engine's thread in these two functions; other programs hardly change it
`ratio` is kvcast divided by vLLM, for the mean and for the 99th percentile of a run: the median of all pairs, and its
interval of 95 %. The interval comes from 10,000 resamples of the engines and of the pairs of each engine, because
engines differ more than the pairs of one engine.

PYTHONPATH must have the unpacked wheel of kvcast. In the environment of tests/live, it must also have the folder of the
release, and VLLM_TARGET_DEVICE must be cpu.

usage: vllm_step_bench.py [--engines N] [--pairs N] [--requests N] [--model NAME] [--seed N]
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import gc
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

LIVE = pathlib.Path(__file__).resolve().parents[1] / "tests/live"
FIGURES = ("step", "scheduler", "cpu")
RESAMPLES = 10_000
READER = """
import sys, zmq
socket = zmq.Context().socket(zmq.SUB)
socket.set_hwm(0)
socket.subscribe("")
for endpoint in sys.argv[1:]:
    socket.connect(endpoint)
while True:
    socket.recv_multipart()
"""


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=6, help="pairs of runs of one engine")
    parser.add_argument("--requests", type=int, default=150, help="requests of one run")
    parser.add_argument("--model", default="llama")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", action="store_true", help="be one of the engines, and print the figures of its pairs")
    return parser.parse_args()


def timed(owner, name: str, calls: list) -> None:
    """Replaces a method by one that records (wall time, CPU time of the thread) of each call in nanoseconds."""
    method = getattr(owner, name)

    def measured(*arguments, **more):
        began, cpu = time.perf_counter_ns(), time.thread_time_ns()
        result = method(*arguments, **more)
        calls.append((time.perf_counter_ns() - began, time.thread_time_ns() - cpu))
        return result

    setattr(owner, name, measured)


class Bench:
    def __init__(self, options: argparse.Namespace, engine):
        from vllm.distributed.kv_events import ZmqEventPublisher

        from kvcast.vllm import KvcastEventPublisher

        self._options, self._engine = options, engine
        core = engine._llm.llm_engine.engine_core.engine_core
        self._scheduler = core.scheduler
        self._scheduler.kv_event_publisher.shutdown()
        self._calls = {name: [] for name in ("step", "schedule", "update_from_output")}
        timed(core, "step_fn", self._calls["step"])
        timed(self._scheduler, "schedule", self._calls["schedule"])
        timed(self._scheduler, "update_from_output", self._calls["update_from_output"])
        ports = engine_module.free_ports(2)
        endpoints = [f"tcp://*:{port}" for port in ports]
        more = {"replay_endpoint": "tcp://127.0.0.1:*", "topic": "kv-events", "buffer_steps": 10_000}
        self._publishers = {"vllm": ZmqEventPublisher(0, endpoints[0], **more),
                            "kvcast": KvcastEventPublisher(0, endpoints[1], **more)}
        self._reader = subprocess.Popen([sys.executable, "-c", READER, *(f"tcp://127.0.0.1:{port}" for port in ports)])

    def run(self, name: str) -> dict:
        """Returns the time of each step in microseconds, by figure."""
        engine, options = self._engine, self._options
        self._scheduler.kv_event_publisher = self._publishers[name]
        if not engine.reset():
            raise RuntimeError("the cache was not reset")
        requests = workload.Workload(options.seed, models.VOCAB, [workload.Key()], engine.options.longest)
        gc.collect()
        for calls in self._calls.values():
            calls.clear()
        running, ended, added = {}, 0, 0
        while ended < options.requests:
            while added < options.requests and len(running) < engine_module.IN_FLIGHT:
                request = requests.next()
                running[engine.add(request)] = request
                added += 1
            for done, _, output in engine.step():
                requests.note(running.pop(done), output)
                ended += 1
        engine.drain()
        parts = list(zip(self._calls["schedule"], self._calls["update_from_output"], strict=True))
        return {"step": [wall * 1e-3 for wall, _ in self._calls["step"]],
                "scheduler": [sum(wall for wall, _ in part) * 1e-3 for part in parts],
                "cpu": [sum(cpu for _, cpu in part) * 1e-3 for part in parts]}

    def close(self) -> None:
        self._reader.kill()
        self._reader.wait()
        for publisher in self._publishers.values():
            publisher.shutdown()


def summary(run: dict) -> dict:
    figures = {}
    for figure in FIGURES:
        figures[f"{figure}_mean"] = statistics.mean(run[figure])
        figures[f"{figure}_p99"] = statistics.quantiles(run[figure], n=100)[98]
    return figures


def interval(engines: list[list[float]]) -> list[float]:
    """Returns the median of the ratios of all engines, and its interval of 95 %."""
    pick = random.Random(1)

    def resampled() -> float:
        return statistics.median(ratio for ratios in pick.choices(engines, k=len(engines))
                                 for ratio in pick.choices(ratios, k=len(ratios)))

    medians = sorted(resampled() for _ in range(RESAMPLES))
    return [round(value, 3) for value in (statistics.median(sum(engines, [])), medians[RESAMPLES // 40],
                                          medians[-RESAMPLES // 40])]


def one_engine(options: argparse.Namespace) -> dict:
    with tempfile.TemporaryDirectory(prefix="kvcast-steps-") as folder:
        os.chdir(folder)
        described = engine_module.EngineOptions(model=models.write(options.model, "./model"))
        bench = Bench(options, engine_module.Engine(described))
        pairs, steps = [], 0
        for number in range(options.pairs + 1):
            names = ("vllm", "kvcast") if number % 2 else ("kvcast", "vllm")
            runs = {name: bench.run(name) for name in names}
            if number == 0:  # the first pair warms up
                continue
            lengths = {len(run["step"]) for run in runs.values()}
            if len(lengths) != 1:
                raise RuntimeError(f"the runs of a pair have different numbers of steps: {lengths}")
            steps = lengths.pop()
            pairs.append({name: summary(run) for name, run in runs.items()})
        bench.close()
        os.chdir("/")
    return {"steps": steps, "pairs": pairs}


def main() -> None:
    options = parse()
    if options.one:
        print(json.dumps(one_engine(options)), flush=True)
        os._exit(0)  # threads and exit handlers of vLLM must not delay the end
    engines = []
    for _ in range(options.engines):
        ended = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--one"], check=True, text=True,
                               stdout=subprocess.PIPE)
        engines.append(json.loads(ended.stdout.splitlines()[-1]))
    pairs = [pair for engine in engines for pair in engine["pairs"]]
    figures = list(pairs[0]["vllm"])
    result = {name: {figure: round(statistics.median(pair[name][figure] for pair in pairs), 1) for figure in figures}
              for name in ("vllm", "kvcast")}
    result["ratio"] = {figure: interval([[pair["kvcast"][figure] / pair["vllm"][figure] for pair in engine["pairs"]]
                                         for engine in engines]) for figure in figures}
    print(json.dumps(vars(options) | {"steps": engines[0]["steps"]} | result))


if __name__ == "__main__":
    sys.path.insert(0, str(LIVE))
    import engine as engine_module

    engine_module.set_environment()
    import models
    import workload

    main()
