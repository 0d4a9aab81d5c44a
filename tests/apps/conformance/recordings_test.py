#!/usr/bin/python3
"""The recordings that ship with the project contain every class of run and every producer, and they
fit into the size bound. One wrong value in any kind of recording makes `kvcast conformance` fail.

usage: recordings_test.py KVCAST RECORDINGS
SPDX-License-Identifier: Apache-2.0
"""
import gzip
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

KVCAST, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
MAX_BYTES = 12_000_000

WIRE_LAYOUTS = {f"vllm_l{i:02}" for i in range(1, 13)} | {f"sglang_l{i:02}" for i in range(1, 6)}
# The release, branch or date of each producer commit.
SCENARIO_PRODUCERS = {"b1388b1fb": "v0.19.1", "414814fa1": "v0.21.0 branch", "8c296de63": "2026-05-18",
                      "017e9f444": "2026-08-17", "4ba787ec9": "v0.33.0"}
OFFLOAD_PRODUCER = "7cfb97e33"


def groups(kind, **members):
    """Selects runs with a group of this kind that has these members."""
    return lambda run: any(group["kind"] == kind and all(group.get(k) == v for k, v in members.items())
                           for group in run.config["groups"])


def member(name, *values):
    return lambda run: run.config.get(name) in values


def adds(name):
    """Selects runs with a request that has this member."""
    return lambda run: any(op["op"] == "add" and op.get(name) for op in run.ops)


def operation(name, **members):
    return lambda run: any(op["op"] == name and all(op.get(k) == v for k, v in members.items())
                           for op in run.ops)


def kinds(run):
    return [group["kind"] for group in run.config["groups"]]


SCENARIO_CLASSES = {
    "full attention alone": lambda run: kinds(run) == ["full"],
    "sliding window alone": lambda run: kinds(run) == ["swa"],
    "windows without full attention": lambda run: kinds(run) == ["swa", "swa"],
    "full attention and one window": lambda run: sorted(kinds(run)) == ["full", "swa"],
    "full attention and three windows": lambda run: sorted(kinds(run)) == ["full"] + 3 * ["swa"],
    "five windows": lambda run: kinds(run).count("swa") == 5,
    "a window first": lambda run: kinds(run)[0] == "swa" and "full" in kinds(run),
    "chunked local attention": groups("chunked"),
    "Mamba, every state": groups("mamba", mode="all"),
    "Mamba, aligned states": groups("mamba", mode="align"),
    "Mamba checkpoints in the last prefill chunk": groups("mamba", prefill_checkpoint_blocks=1),
    "Mamba and a window": lambda run: {"mamba", "swa"} <= set(kinds(run)),
    "checkpoint at the junction of prefixes": member("enable_mamba_shared_prefix_checkpoint", True),
    "block sizes that differ": lambda run: len({group["block_size"] for group in run.config["groups"]}) > 1,
    "hits inside a block": member("enable_partial_hash_hits", True),
    "sliding window of MLA": groups("swa", spec_kind="sliding_window_mla"),
    "a scratch group": groups("ring", prefix_cacheable=False),
    "bounded replay": lambda run: any("prefix_replay_tokens" in group for group in run.config["groups"]),
    "a draft head that drops a block": lambda run: any(group.get("eagle") for group in run.config["groups"]),
    "lookahead of one token": member("hash_lookahead_tokens", 1),
    "lookahead of three tokens": member("hash_lookahead_tokens", 3),
    "verified drafts": operation("rollback"),
    "retention: everything": member("prefix_cache_retention_interval", None),
    "retention: replay boundaries": member("prefix_cache_retention_interval", 0),
    "retention: every 128 tokens": member("prefix_cache_retention_interval", 128),
    "retention: an engine without it": member("prefix_cache_retention_interval", "n/a"),
    "events as arrays": member("event_encoding", "array"),
    "events as maps": member("event_encoding", "map"),
    "hashes as bytes": member("event_hashes", "bytes"),
    "hashes as integers": member("event_hashes", "int64"),
    "SHA-256 of pickle": member("hash_algo", "sha256"),
    "SHA-256 of CBOR": member("hash_algo", "sha256_cbor"),
    "XXH3": member("hash_algo", "xxhash"),
    "tagged extra keys": member("extra_key_scheme", "tagged"),
    "LoRA": adds("lora"),
    "LoRA with a path": lambda run: any(op["op"] == "add" and isinstance(op.get("lora"), dict)
                                        and op["lora"].get("path") for op in run.ops),
    "salts": adds("salt"),
    "images": adds("mm"),
    "prompt embeddings": adds("embeds"),
    "sessions": adds("session"),
    "reported hits": adds("kv_cache_report_mode"),
    "asynchronous scheduling": lambda run: operation("cache")(run) and not operation("rollback")(run),
    "preemption": operation("free", why="preempt"),
    "a reset": operation("reset", ok=True),
    "a reset that fails": operation("reset", ok=False),
    "an abort": operation("abort"),
    "decode context parallelism": member("decode_context_parallel_size", 2),
    "a data-parallel rank": member("data_parallel_rank", 1),
    "bytes of the wire": lambda run: run.wire_payloads,
}

OFFLOAD_FILES = {
    "cpu-manager": {"lru", "arc", "reuse2", "tiny-cap0", "groups4", "evict-heavy", "random-keys", "contended"},
    "manager-calls": {f"{release}-{policy}" for release in ("v032", "v033")
                      for policy in ("lru.", "lru-reuse2", "arc.", "arc-reuse2")},
    "lookup": {"lookup-cases", "rules", "scan-cases"},
    "scheduler": {"full-bpc1", "full-bpc3", "full-arc", "full-swa64", "full-3swa", "retention0", "full64-swa16",
                  "full12-full16", "mamba-align", "mamba-all", "partial-tail", "chunked128", "swa-only",
                  "two-swa-no-full", "eagle", "workers3", "resets-aborts", "preempt", "alloc-fail", "async",
                  "lora", "int-event-hashes", "gpu-prefix-caching-off", "request-level-policy"},
    "scheduler/known-defects": {"connector-reset", "gpu-reset", "last-token", "partial-window"},
    "simple": {"eager-full", "cpu-pressure", "swa64", "3swa", "mamba-align", "workers2-resets-aborts", "lazy-full"},
    "events": {"cpu-event-payloads"},
}


def lines_of(path):
    return gzip.decompress(path.read_bytes()).splitlines()


class Run:
    def __init__(self, path):
        self.config, *steps = map(json.loads, lines_of(path))
        self.ops = [op for step in steps for op in step.get("ops", [])]
        self.wire_payloads = any("payload_hex" in step for step in steps)


class Selection(unittest.TestCase):
    def test_every_file_is_compressed_and_all_fit_the_bound(self):
        files = [path for path in ROOT.rglob("*") if path.is_file()]
        self.assertEqual([path for path in files if path.suffix != ".gz"
                          and path.name not in ("README.md", "select.py")], [])
        self.assertLessEqual(sum(path.stat().st_size for path in files), MAX_BYTES)

    def test_it_holds_lines_of_the_whole_set(self):
        whole_sets = [os.environ.get(name) for name in ("KVCAST_CONFORMANCE", "KVCAST_CONFORMANCE_033")]
        if not all(whole_sets):
            self.skipTest("KVCAST_CONFORMANCE or KVCAST_CONFORMANCE_033 is not set")
        done = subprocess.run([ROOT / "select.py", "--check", *whole_sets], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_class_of_engine_runs_is_held(self):
        runs = [Run(path) for path in sorted(ROOT.glob("*/scenarios/*.gz"))]
        held = {commit for commit in SCENARIO_PRODUCERS for run in runs if run.config["commit"].startswith(commit)}
        self.assertEqual(held, set(SCENARIO_PRODUCERS))
        for name, selects in SCENARIO_CLASSES.items():
            with self.subTest(name):
                self.assertTrue(any(map(selects, runs)), "no run of this class")

    def test_no_run_is_missing(self):
        numbers = sorted(int(path.name[:2]) for path in ROOT.glob("*/scenarios/*.gz"))
        self.assertEqual(numbers, [*range(1, 35), *range(40, 86)])

    def test_every_wire_layout_is_held_with_every_event(self):
        events = {}
        for path in ROOT.glob("*/wire/*.gz"):
            for record in map(json.loads, lines_of(path)):
                layout = record["name"].split("/")[0]
                events.setdefault(layout, set()).update(
                    event["type"] for event in record["decoded"]["events"])
        self.assertEqual(set(events), WIRE_LAYOUTS)
        for layout, types in events.items():
            self.assertEqual(types, {"BlockStored", "BlockRemoved", "AllBlocksCleared"}, layout)

    def test_every_hash_scheme_is_held(self):
        held = {(record["algo"], record.get("extra_key_scheme"), record.get("hash_lookahead_tokens"))
                for path in ROOT.glob("*/hashes/*.gz") for record in map(json.loads, lines_of(path))}
        algorithms = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")
        self.assertEqual(held, {(algorithm, *form) for algorithm in algorithms
                                for form in ((None, None), ("tagged", 0), ("tagged", 1), ("tagged", 3))})

    def test_frames_of_every_replay_protocol_are_held(self):
        names = {record["name"] for path in ROOT.glob("*/frames/frames.json.gz")
                 for record in json.loads(gzip.decompress(path.read_bytes()))}
        for part in ("vllm_l01", "vllm_l07", "vllm_l10", "vllm_l12", "sglang_l03", "topic-empty", "rank",
                     "unencodable-batch", "restart", "port0", "slow-replay-client"):
            self.assertTrue(any(part in name for name in names), part)
        self.assertTrue(list(ROOT.glob("*/frames/zmtp-capture.json.gz")))

    def test_every_class_of_offload_data_is_held(self):
        for folder, classes in OFFLOAD_FILES.items():
            paths = list(ROOT.glob(f"*/offload/{folder}/*.gz"))
            for part in classes:
                self.assertTrue(any(part in path.name for path in paths), f"{folder}: {part}")
            for path in paths:
                if folder not in ("lookup", "events", "manager-calls"):
                    self.assertTrue(json.loads(lines_of(path)[0])["commit"].startswith(OFFLOAD_PRODUCER), path)


def conformance(kind, path, *flags):
    """Returns (exit code, report) of a run over one file."""
    done = subprocess.run([KVCAST, "conformance", kind, path, "--json", *flags], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


class PlantedFault(unittest.TestCase):
    """`kvcast conformance` finds the difference in a copy of one recording with one wrong value."""

    def expect_found(self, kind, name, pattern, wrong, flags=()):
        path = next(ROOT.glob(f"*/{name}"))
        content = gzip.decompress(path.read_bytes()).decode()
        matches = list(re.finditer(pattern, content))
        self.assertTrue(matches)
        match = matches[len(matches) // 2]
        planted = content[:match.start(1)] + wrong(match[1]) + content[match.end(1):]
        with tempfile.TemporaryDirectory() as folder:
            for text, differs in ((content, False), (planted, True)):
                copy = pathlib.Path(folder, path.name)
                copy.write_bytes(gzip.compress(text.encode()))
                code, report = conformance(kind, copy, *flags)
                self.assertEqual(code != 0, differs, report)
                self.assertEqual(report["equal"] < report["compared"], differs, report)

    def test_a_hit_of_a_probe(self):
        for kind in ("router", "engine"):
            self.expect_found(kind, "scenarios/10-full-3swa-dense.jsonl.gz",
                              r'"probes": ?.*?"hit": ?(\d\d+)', lambda hit: str(int(hit) + 16))

    def test_a_hit_of_a_lookup(self):
        self.expect_found("engine", "scenarios/56-v33-eagle-lookahead.jsonl.gz",
                          r'"op": ?"lookup".*?"hit": ?(\d\d+)', lambda hit: str(int(hit) - 16))

    def test_a_byte_of_the_wire(self):
        self.expect_found("wire", "wire/vectors.jsonl.gz", r'"hex": ?"\w+(\d)"', lambda digit: str(int(digit) ^ 1))

    def test_a_frame(self):
        self.expect_found("frames", "frames/frames.json.gz", r'"([0-9a-f])[0-9a-f]{60,}"',
                          lambda digit: f"{int(digit, 16) ^ 1:x}")

    def test_a_hash(self):
        self.expect_found("hash", "hashes/block_hashes.jsonl.gz", r'"block_hashes": ?\["(\w)',
                          lambda digit: f"{int(digit, 16) ^ 1:x}")

    def test_a_slot_of_the_host_pool(self):
        self.expect_found("offload", "offload/cpu-manager/10-arc-5000.jsonl.gz", r'"slots": ?\[(\d+)',
                          lambda slot: str(int(slot) + 1))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
