"""OffloadManager against recorded calls on vLLM's managers (tests/data/recordings)."""
import gzip
import json
import os
import pathlib

import pytest

import kvcast

RECORDINGS = pathlib.Path(__file__).parents[2] / "tests/data/recordings"
FILES = sorted([*RECORDINGS.glob("*/offload/cpu-manager/*.gz"), *RECORDINGS.glob("*/offload/manager-calls/*.gz")])
RUNS = sorted(RECORDINGS.glob("*/offload/scheduler/**/*.gz"))
# The whole runs, if KVCAST_CONFORMANCE names the folder of the runs.
SET = pathlib.Path(os.environ.get("KVCAST_CONFORMANCE", "/nonexistent"), "offload")
WHOLE, WHOLE_RUNS = sorted(SET.glob("cpu-manager/*.jsonl*")), sorted(SET.glob("scheduler/**/*.jsonl*"))
LETTERS = {"miss": "M", "hit": "H", "pending": "P", "retry": "R"}


def read(path):
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return map(json.loads, text.splitlines())


class Replay:
    """Makes the recorded calls. Each method returns whether the result is the recorded one."""

    def __init__(self, config):
        self.keys = [bytes.fromhex(key) for key in config.get("keys", [])]
        self.numbers = {key: number for number, key in enumerate(self.keys)}
        self.ends = config.get("ends")
        groups = config["num_groups"] if "num_groups" in config else len(config["groups"])
        self.manager = kvcast.OffloadManager(
            config["num_blocks"] if "num_blocks" in config else config["cpu_slots"], [1] * groups,
            policy=config["policy"] if "policy" in config else config["eviction_policy"], page_bytes=1,
            store_threshold=config["store_threshold"], max_tracker_size=config["max_tracker_size"],
            enable_events=config.get("events_enabled", False), rules=config.get("rules", "2026-08"), compatible=True)

    def arguments(self, op):
        ends = None if self.ends is None else [self.ends[number] for number in op["keys"]]
        return [self.key(number) for number in op["keys"]], op.get("request", 0), ends

    def key(self, number):
        """A key is a number, or [number of the hash, group]."""
        if isinstance(number, list):
            key = number[0].to_bytes(32, "big") + number[1].to_bytes(4, "big")
            self.numbers[key] = number
            return key
        return self.keys[number]

    def list(self, keys):
        return [self.numbers[key] for key in keys]

    def lookup(self, op):
        keys, request, _ = self.arguments(op)
        return "".join(LETTERS[self.manager.lookup(key, request)] for key in keys) == op["result"]

    def prepare_store(self, op):
        try:
            plan = self.manager.prepare_store(*self.arguments(op))
        except kvcast.ExhaustedError:
            return op["result"] is None
        return op["result"] == {"to_store": self.list(plan["keys"]), "slots": plan["slots"],
                                "evicted": self.list(plan["evicted"])}

    def prepare_load(self, op):
        return self.manager.prepare_load(*self.arguments(op)) == op["slots"]

    def complete_store(self, op):
        return self.manager.complete_store(self.arguments(op)[0], op["success"]) is None

    def complete_load(self, op):
        return self.manager.complete_load(self.arguments(op)[0]) is None

    def touch(self, op):
        return self.manager.touch(self.arguments(op)[0]) is None

    def request_finished(self, op):
        return self.manager.finish_request(op.get("request", 0)) is None

    def reset_cache(self, op):
        return self.manager.reset() is None

    def take_events(self, op):
        events = [{"removed": kind == "removed", "medium": "CPU", "keys": self.list(keys)}
                  for kind, keys in self.manager.take_events()]
        return events == op["events"]

    def get_stats(self, op):
        stats, known = self.manager.take_stats(), op["stats"]
        return (stats["usage"] == known["cpu_cache_usage_perc"]
                and stats["write_usage"] == known["cpu_cache_write_usage_perc"]
                and stats["read_usage"] == known["cpu_cache_read_usage_perc"]
                and stats["allocation_sizes"] == known.get("cpu_allocation_size", [])
                and stats["stores_skipped"] == known.get("stores_skipped", 0))


@pytest.mark.parametrize("path", FILES + WHOLE, ids=lambda path: path.name.split(".")[0])
def test_every_recorded_call_gives_the_result_of_vllm(path):
    config, *ops = read(path)
    replay, calls = Replay(config), 0
    for op in ops:
        if "op" in op:
            assert getattr(replay, op["op"])(op), f"call {op['i']}: {op}"
            calls += 1
    assert calls > 30


@pytest.mark.parametrize("path", RUNS + WHOLE_RUNS, ids=lambda path: path.name.split(".")[0])
def test_the_calls_of_every_recorded_scheduler_give_the_result_of_vllm(path):
    config, *steps = read(path)
    replay, hashes, compared = Replay(config), {}, 0
    for op in (op for step in steps for op in step.get("ops", [])):
        if op["op"] == "hashes":
            hashes[op["req"]] = hashes.get(op["req"], [])[:op["from"]] + op["ids"]
        for call in op.get("calls", []):
            if "from" in call:  # the chunks of a request
                size = config["derived"][call["g"]]["hashes_per_chunk"]
                last = hashes[call["req"]][size - 1::size]
                call["keys"] = [[number, call["g"]] for number in last[call["from"]:call["to"]]]
            assert getattr(replay, call["call"])(call), f"{op['op']}: {call}"
            compared += 1
    assert compared > 20


def test_no_recording_is_missing():
    assert len(FILES) == 27 and len(RUNS) == 43 and {path.parents[2].name for path in FILES} == {"until-2026-08", "vllm-0.33"}
