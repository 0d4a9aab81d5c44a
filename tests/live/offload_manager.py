#!/usr/bin/env python3
"""Compares kvcast's offloading manager and cache policies with those of vLLM, by random calls in one process. Needs no
model. KvcastOffloadingManager and KvcastCachePolicy must give the result of vLLM's own classes for every call.

usage: offload_manager.py [--seeds N] [--calls N] [--record FOLDER]
Needs PYTHONPATH with the package kvcast and with vLLM. --record writes the calls and results of vLLM's manager instead
(tests/data/recordings/README.md, `cpu-manager`).
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import gzip
import json
import os
import pathlib
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
import vllm
from kvcast import _vllm_offload_calls as calls_module
from kvcast import _vllm_offload_seams as seams
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager

CHUNKS, TRACKED = 24, 64
POLICIES = {"lru": "KvcastCachePolicy", "arc": "KvcastArcCachePolicy"}


def vllm_manager(policy, threshold):
    return CPUOffloadingManager(CHUNKS, policy, "kvcast.vllm", True, threshold, TRACKED)


def compare(seeds, calls):
    rules, different = seams.rules_of_policy(), 0
    for policy, own_policy in POLICIES.items():
        for threshold in (0, 2):
            for kind in ("manager", "policy"):
                equal = 0
                for seed in range(seeds):
                    pair = None
                    if kind == "policy":
                        pair = vllm_manager(policy, threshold), vllm_manager(own_policy, threshold)
                    text = seams.first_difference(policy, threshold, rules, seed, calls, pair)
                    equal += text is None
                    if text is not None:
                        print(f"seed {seed}: {text}")
                different += seeds - equal
                print(f"vLLM {vllm.__version__}, {policy}, threshold {threshold}, {kind}: {equal} of {seeds} runs of "
                      f"{calls} calls equal", flush=True)
    return different


class Recorder:
    """Writes calls on vLLM's manager in the format of `cpu-manager`."""

    def __init__(self, policy, threshold, seed):
        self._manager = vllm_manager(policy, threshold)
        self._driver = calls_module.CallDriver(seed, sides=1)
        self._numbers = {}
        self._policy, self._threshold = policy, threshold

    def _number(self, key):
        return self._numbers.setdefault(bytes(key), len(self._numbers))

    def _list(self, keys):
        return [self._number(key) for key in keys]

    def _op(self, call, result):
        op = {"op": {"on_request_finished": "request_finished"}.get(call.name, call.name)}
        if call.request is not None:
            op["request"] = call.request.number
        if call.keys:
            op["keys"] = self._list(call.keys)
        if call.name == "lookup":
            op["result"] = result
        elif call.name == "prepare_store":
            op["result"] = result and {"to_store": self._list(result[0]), "slots": result[1],
                                       "evicted": self._list(result[2])}
        elif call.name == "prepare_load":
            op["keys"], op["slots"] = self._list(result[0]), result[1]
        elif call.name == "complete_store":
            op["success"] = call.success
        elif call.name == "take_events":
            op["events"] = [{"removed": removed, "medium": medium.value, "keys": self._list(keys)}
                            for keys, medium, removed, metadata_only in result if not metadata_only]
        elif call.name == "get_stats":
            op["stats"] = {name.removeprefix("vllm:kv_offload_"): next(iter(by_label.values()))
                           for name, by_label in result["data"].items()}
        manager = self._manager
        op["n"] = [manager._num_allocated_chunks, len(manager._free_list), manager._num_evictable_cache_chunks,
                   manager._num_write_pending_chunks]
        if self._policy == "arc":
            arc = manager._policy
            op["arc"] = [arc.target_t1_size, len(arc.t1), len(arc.t2), len(arc.b1), len(arc.b2)]
        return op

    def run(self, calls):
        ops = []
        for _ in range(calls):
            call = self._driver.next()
            result = self._driver.make(call, self._manager, 0)
            self._driver.note(call, result)
            if call.name != "on_new_request" and not (call.name == "prepare_load" and result is None):
                ops.append({"i": len(ops)} | self._op(call, result))
        config = {"record": "config", "producer": "vllm", "release": vllm.__version__, "rules": seams.rules_of_policy(),
                  "policy": self._policy, "num_blocks": CHUNKS, "store_threshold": self._threshold,
                  "max_tracker_size": TRACKED, "events_enabled": True, "medium": "CPU",
                  "num_groups": calls_module.GROUPS, "keys": [key.hex() for key in self._numbers],
                  "ends": [self._driver.ends[key] for key in self._numbers]}
        return [config, *ops]


def record(folder, calls):
    release = "v" + "".join(vllm.__version__.split(".")[:2]).zfill(3)
    for seed, (policy, threshold) in enumerate([("lru", 0), ("lru", 2), ("arc", 0), ("arc", 2)], 1):
        lines = Recorder(policy, threshold, 1000 + seed).run(calls)
        name = f"{release}-{policy}{'-reuse2' if threshold else ''}.jsonl.gz"
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (folder / name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        print(folder / name, len(lines) - 1, "calls")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--record", type=pathlib.Path)
    options = parser.parse_args()
    if options.record:
        record(options.record, options.calls)
        return 0
    return 1 if compare(options.seeds, options.calls) else 0


if __name__ == "__main__":
    sys.exit(main())
