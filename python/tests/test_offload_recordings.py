"""OffloadManager against recorded calls on vLLM's managers (tests/data/recordings)."""
import gzip
import json
import os
import pathlib

import pytest

import kvcast

RECORDINGS = pathlib.Path(__file__).parents[2] / "tests/data/recordings"
FILES = sorted([*RECORDINGS.glob("*/offload/cpu-manager/*.gz"), *RECORDINGS.glob("*/offload/manager-calls/*.gz")])
# The whole runs, if the variable names their folder.
WHOLE = sorted(pathlib.Path(os.environ.get("KVCAST_CONFORMANCE", "/nonexistent")).glob("offload/cpu-manager/*.jsonl*"))
LETTERS = {"miss": "M", "hit": "H", "pending": "P", "retry": "R"}


class Replay:
    """Makes the recorded calls. Each method returns the result in the form of the recording."""

    def __init__(self, config):
        self.keys = [bytes.fromhex(key) for key in config["keys"]]
        self.numbers = {key: number for number, key in enumerate(self.keys)}
        self.ends = config.get("ends")
        self.manager = kvcast.OffloadManager(
            config["num_blocks"], [1] * config["num_groups"], policy=config["policy"], page_bytes=1,
            store_threshold=config["store_threshold"], max_tracker_size=config["max_tracker_size"],
            enable_events=config["events_enabled"], rules=config.get("rules", "2026-08"), compatible=True)

    def use(self, op):
        ends = None if self.ends is None else [self.ends[number] for number in op["keys"]]
        return [self.keys[number] for number in op["keys"]], op.get("request", 0), ends

    def list(self, keys):
        return [self.numbers[key] for key in keys]

    def lookup(self, op):
        keys, request, _ = self.use(op)
        return "".join(LETTERS[self.manager.lookup(key, request)] for key in keys) == op["result"]

    def prepare_store(self, op):
        try:
            plan = self.manager.prepare_store(*self.use(op))
        except kvcast.ExhaustedError:
            return op["result"] is None
        return op["result"] == {"to_store": self.list(plan["keys"]), "slots": plan["slots"],
                                "evicted": self.list(plan["evicted"])}

    def prepare_load(self, op):
        return self.manager.prepare_load(*self.use(op)) == op["slots"]

    def complete_store(self, op):
        return self.manager.complete_store(self.use(op)[0], op["success"]) is None

    def complete_load(self, op):
        return self.manager.complete_load(self.use(op)[0]) is None

    def touch(self, op):
        return self.manager.touch(self.use(op)[0]) is None

    def request_finished(self, op):
        return self.manager.finish_request(op["request"]) is None

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
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    config, *ops = map(json.loads, text.splitlines())
    replay, made = Replay(config), 0
    for op in ops:
        if "op" in op:
            assert getattr(replay, op["op"])(op), f"call {op['i']}: {op}"
            made += 1
    assert made > 30


def test_the_recordings_of_three_releases_are_there():
    assert len(FILES) == 27 and {path.parents[2].name for path in FILES} == {"until-2026-08", "vllm-0.33"}
