"""One run with an engine, a router and requests. Compares every answer.
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import dataclasses
import json
import os
import statistics
import time

import models
from engine import IN_FLIGHT, Engine, EngineOptions, free_ports
from mirror import Mirror
from payloads import Payloads
from recording import Recording
from remote import RemoteEngine
from report import Report
from router import NAME, Router
from workload import Key, Workload


def keys(options: argparse.Namespace) -> list[Key]:
    salts = [None, "tenant-a", "tenant-b", "tenant-c"] if options.salts else [None]
    names = [None, "adapter-a", "adapter-b"] if options.lora else [None]
    return [Key(salt, name) for salt in salts for name in names]


def query(tokens, key: Key) -> dict:
    body = {"tokens": list(tokens)}
    if key.cache_salt is not None:
        body["cache_salt"] = key.cache_salt
    if key.lora_name is not None:
        body["lora_name"] = key.lora_name
    return body


class Run:
    def __init__(self, options: argparse.Namespace, engine_settings: EngineOptions):
        self.options, self.engine_settings = options, engine_settings
        self.report = Report()
        self.router = Router(options.kvcast)
        self.workload = Workload(options.seed, models.VOCAB, keys(options), engine_settings.longest,
                                 options.reports)

    def source(self, engine) -> dict:
        options = self.options
        members = {"endpoint": engine.endpoint, "replay_endpoint": engine.replay_endpoint}
        if options.connect:
            members["bind"] = True
        properties = engine.properties("all" if options.fault == "window" else options.tell)
        if options.reports and options.tell != "nothing":
            properties["reports_hits"] = True
        if options.fault == "window":
            for group in properties["groups"]:
                if "sliding_window" in group:
                    group["sliding_window"] //= 2
        known = self.router.source_members()
        return members | {name: value for name, value in properties.items() if name in known} | \
            options.tell_more

    def print_difference(self, where: str, length: int, key: Key, answer: dict, reused: int,
                         why: str) -> None:
        self.options.differences -= 1
        if self.options.differences >= 0:
            print(f"{where}: {length} tokens, {key}, engine {reused}, router {json.dumps(answer)}\n"
                  f"  {why}", flush=True)

    def stop_router(self) -> dict:
        state = self.router.worker_state()
        status = self.router.stop()
        if status != 0:
            raise RuntimeError(f"the router ended with exit code {status}")
        return {name: state[name] for name in ("rejected_events", "lost")}


class InProcess(Run):
    """A run with the engine in this process. The run can intercept the engine's lookups, and can compare the
    events with the pool."""

    def __init__(self, options: argparse.Namespace, engine_settings: EngineOptions):
        super().__init__(options, engine_settings)
        self.engine = Engine(engine_settings)
        self._dropped = False
        if options.fault == "drop":
            self.engine.on_batch.append(self._drop)
        self.mirror = Mirror()
        self.engine.on_batch.append(self.mirror.note)
        self.engine.on_batch.append(self._note_clear)
        self.recording = None
        if options.record:
            name = os.path.basename(options.record).split(".jsonl")[0]
            self.recording = Recording(options.record, name, self.engine)
            self.engine.on_batch.append(self.recording.batch)
        self.resets = []  # for each reset, the seconds until AllBlocksCleared was published
        self._reset_at = None
        self.payloads = Payloads(self.engine) if options.plugin else None
        self.rejoin = None
        self.host = {"loads": 0, "promised": 0, "loaded": 0, "differ": 0}

    def _drop(self, batch) -> None:
        for event in batch.events:
            if not self._dropped and type(event).__name__ == "BlockStored" and \
                    event.parent_block_hash is None and event.block_hashes:
                self._dropped = True
                batch.events.remove(event)
                return

    def _note_clear(self, batch) -> None:
        if self._reset_at is not None and \
                any(type(event).__name__ == "AllBlocksCleared" for event in batch.events):
            self.resets.append(time.monotonic() - self._reset_at)
            self._reset_at = None

    def drive(self) -> dict:
        engine, options = self.engine, self.options
        try:
            if options.late == 0:
                self.router.follow(self.source(engine))
            for number in range(options.requests):
                if options.router_restart and number == options.router_restart:
                    self._restart_router()
                if options.late and number == options.late:
                    self.router.follow(self.source(engine))
                if options.reset_every and number % options.reset_every == options.reset_every - 1:
                    self._reset(idle_s=1.0 if len(self.resets) == 0 else 0.0)
                self._one(number, asked=number >= options.late)
            if options.flight:
                self._in_flight(options.flight)
            return self._end()
        finally:
            self.router.stop()
            engine.stop()

    def _restart_router(self) -> None:
        """Replaces the router. Notes the time from the end of the old router until the new router has all batches."""
        if self.options.plugin:
            self.router.kill()
        else:
            self.stop_router()
        began = time.monotonic()
        self.router = Router(self.options.kvcast)
        self.router.follow(self.source(self.engine))
        answer = self.router.ask({"tokens": [1]}, self.engine.published)
        self.rejoin = {"seconds": round(time.monotonic() - began, 3), "state": answer["state"],
                       "asked_before": self.report.sequential["asked"], "exact_before": self.report.sequential["exact"]}
        if answer["state"] != "synced" and self.options.plugin:
            self.report.more_failures.append(f"after the restart of the router, the state is {answer['state']}")

    def _reset(self, idle_s: float) -> None:
        """Resets the cache, and waits. An idle engine must not publish the reset."""
        engine = self.engine
        before = engine.published
        self._reset_at = time.monotonic()
        if not engine.reset():
            raise RuntimeError("the cache was not reset")
        if self.recording:
            self.recording.op("reset", ok=True)
        time.sleep(idle_s)
        if engine.published != before or self._reset_at is None:
            raise RuntimeError("an idle engine has published a reset; tests/live/README.md says that it does not")

    def _one(self, number: int, asked: bool) -> None:
        engine = self.engine
        request = self.workload.next()
        looked_up = []

        def on_lookup(engine_request, lookup):
            pending = list(engine.pending())
            result = lookup()
            if not looked_up:
                looked_up.append((result[1], pending))
                if asked and not self.options.host_mib:
                    self._compare(number, engine_request, request.key, answer, result[1], pending)
                if self.recording and not pending:
                    self.recording.probe(list(request.tokens), request.key, request.reports, result[1])
            return result

        answer = self.router.ask(query(request.tokens, request.key), engine.published) if asked else None
        engine.on_lookup = on_lookup
        name = f"r{number}"
        if self.recording:
            self.recording.add(name, request)
        reused, output = engine.run(request)
        engine.on_lookup = None
        if self.recording and output:
            self.recording.op("output", tokens={name: output})
        self.workload.note(request, output)
        hit, pending = looked_up[0]
        if self.options.host_mib:
            self._note_host(answer, hit, reused)
        elif reused != hit:
            raise RuntimeError(f"request {number}: the lookup found {hit} tokens, num_cached_tokens is {reused}")
        if asked:
            self.report.note(self.report.sequential, request.key != Key(), answer, hit, bool(pending))

    def _note_host(self, answer: dict, hit: int, reused: int) -> None:
        """Counts the loads of a request. num_cached_tokens includes the tokens that the connector loads."""
        promised, loaded = answer["reusable_with_cpu_tokens"] - hit, reused - hit
        self.host["loads"] += loaded > 0
        self.host["promised"] += promised
        self.host["loaded"] += loaded
        self.host["differ"] += promised != loaded

    def _compare(self, number: int, engine_request, key, answer: dict, hit: int, pending: list) -> None:
        if answer["reusable_tokens"] != hit and not pending:
            why = self.mirror.explain(self.engine.manager, engine_request, pending)
            self.print_difference(f"request {number}", engine_request.num_tokens, key, answer, hit, why)

    def _in_flight(self, count: int) -> None:
        engine = self.engine
        engine.on_lookup = self._at_lookup
        running, self._keys, ended, added = {}, {}, 0, 0
        while ended < count:
            while added < count and len(running) < IN_FLIGHT:
                request = self.workload.next()
                name = engine.add(request)
                running[name], self._keys[name] = request, (request.key, request.reports)
                if self.recording:
                    self.recording.add(name, request)
                added += 1
            for name, _, output in engine.step():
                request = running.pop(name)
                self.workload.note(request, output)
                if self.recording and output:
                    self.recording.op("output", tokens={name: output})
                ended += 1
        engine.drain()
        engine.on_lookup = None

    def _at_lookup(self, engine_request, lookup):
        """Asks the router when it has applied all events of the engine. After that, the engine makes its
        lookup. The engine looks up a request again if the request waits or was preempted."""
        engine = self.engine
        engine.publish_pending()
        # vLLM may add a suffix to the name of a request.
        key, reports = next(entry for name, entry in self._keys.items()
                            if engine_request.request_id == name or engine_request.request_id.startswith(name + "-"))
        tokens = list(engine_request.all_token_ids)
        answer = self.router.ask(query(tokens, key), engine.published)
        result = lookup()
        hit = result[1]
        if self.report.note(self.report.at_lookup, key != Key(), answer, hit) != 0:
            why = self.mirror.explain(engine.manager, engine_request, [])
            self.print_difference(f"lookup of {engine_request.request_id}", len(tokens), key, answer, hit, why)
        if self.recording:
            self.recording.probe(tokens, key, reports, hit)
        return result

    def _end(self) -> dict:
        engine = self.engine
        engine.publish_pending()
        self.router.ask({"tokens": [1]}, engine.published)
        result = self.report.result() | {"batches": engine.published} | self.stop_router()
        if self.payloads is not None:
            result["payloads"] = self.payloads.compare()
            self.report.more_failures += self.payloads.failures
        if self.rejoin is not None:
            before = {name: self.rejoin.pop(f"{name}_before") for name in ("asked", "exact")}
            result["rejoin"] = self.rejoin | {name: self.report.sequential[name] - count for name, count in before.items()}
        if self.options.fault == "drop" and not self._dropped:
            raise RuntimeError("no store from a root was published")
        if self.resets:
            milliseconds = sorted(1000 * seconds for seconds in self.resets)
            result["reset_to_cleared_ms"] = {
                "resets": len(milliseconds), "median": round(statistics.median(milliseconds), 1),
                "least": round(milliseconds[0], 1), "most": round(milliseconds[-1], 1)}
        if self.options.host_mib:
            result["host"] = self.host
            if self.host["loaded"] == 0:
                self.report.more_failures.append("host memory: no token was loaded, so the run shows nothing")
            if self.host["differ"]:
                self.report.more_failures.append(f"host memory: {self.host['differ']} loads differ")
        if self.recording:
            self.recording.close()
            result["probes"] = self.recording.probes
        return result


class Processes(Run):
    """A run with engines in separate processes: data-parallel ranks, or an engine that is killed."""

    def __init__(self, options: argparse.Namespace, engine_settings: EngineOptions):
        super().__init__(options, engine_settings)
        ranks = options.ranks
        # The publisher adds the rank to its ports.
        self.ports = _port_ranges(ranks)
        self.engines = [self._start(rank) for rank in range(ranks)]
        self.names = [NAME if rank == 0 else f"{NAME}-{rank}" for rank in range(ranks)]

    def _start(self, rank: int) -> RemoteEngine:
        engine_settings = dataclasses.replace(self.engine_settings, rank=rank, ports=self.ports)
        return RemoteEngine(engine_settings)

    def drive(self) -> dict:
        options = self.options
        try:
            for name, engine in zip(self.names, self.engines):
                engine.await_start()
                self.router.follow(self.source(engine), name)
            for number in range(options.requests):
                if options.engine_restart and number == options.engine_restart:
                    self.engines[0].kill()
                    self.engines[0] = self._start(0)
                    self.engines[0].await_start()
                self._round(number)
            published = [engine.published for engine in self.engines]
            return self.report.result() | {"batches": published} | self.stop_router()
        finally:
            self.router.stop()
            for engine in self.engines:
                engine.kill()

    def _round(self, number: int) -> None:
        """Runs one request on each rank. All ranks get requests of one workload, so some ranks have a
        prefix in their cache and other ranks do not."""
        begun = []
        for name, engine in zip(self.names, self.engines):
            request = self.workload.next()
            begun.append((request, self.router.ask(query(request.tokens, request.key),
                                                   engine.published, name)))
        for engine, (request, _) in zip(self.engines, begun):
            engine.begin(request)
        for name, engine, (request, answer) in zip(self.names, self.engines, begun):
            reused, output = engine.await_end()
            self.workload.note(request, output)
            if self.report.note(self.report.sequential, request.key != Key(), answer, reused) != 0:
                self.print_difference(f"request {number} of {name}", len(request.tokens), request.key,
                                      answer, reused, "no explanation, because the pool is in another process")


def _port_ranges(ranks: int) -> tuple[int, int]:
    """Returns the first ports of two ranges of `ranks` ports. The ranges were free a moment ago."""
    import socket

    def is_free(port: int) -> bool:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
        return True

    while True:
        first, second = free_ports(2)
        if abs(first - second) > ranks and \
                all(is_free(port + rank) for port in (first, second) for rank in range(1, ranks)):
            return first, second
