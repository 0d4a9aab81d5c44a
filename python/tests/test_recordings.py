"""The package against recordings of real engines (tests/data/recordings)."""
import gzip
import json
import pathlib

import pytest

import kvcast

RECORDINGS = pathlib.Path(__file__).parents[2] / "tests/data/recordings"
FOLDERS = ["until-2026-08", "vllm-0.33"]
# Runs of all kinds of groups. The prompts of these runs have no salts, adapters or images.
SCENARIOS = ["40-v33-full16", "42-v33-full-swa64-retention0", "44-v33-full-3swa-retention0", "47-v33-gpt-oss-like",
             "48-v33-mixed-block-sizes", "50-v33-full-chunked128", "51-v33-mamba-align"]
OPTIONAL = ("medium", "lora_name", "lora_id", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
            "locality", "ownership", "session_id", "cache_salt", "token_offset", "lookahead_token_ids")


def records(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def value(recorded):
    """A recorded value: byte strings are {"bytes": HEX}."""
    if isinstance(recorded, dict) and "bytes" in recorded:
        return bytes.fromhex(recorded["bytes"])
    if isinstance(recorded, list):
        return [value(item) for item in recorded]
    return recorded


@pytest.mark.parametrize("folder", FOLDERS)
def test_block_hashes_equal_those_of_vllm(folder):
    compared = 0
    for record in records(RECORDINGS / folder / "hashes/block_hashes.jsonl.gz"):
        # The package takes no embeddings, and no identity of Python objects.
        if {"prompt_embeds_float32_rows_hex", "mm_same_object", "mm_identifiers_are_one_python_object"} & set(record):
            continue
        items = [(item["identifier"], item["offset"], item["length"]) for item in record.get("mm", [])]
        options = dict(block_size=record["block_size"], algo=record["algo"],
                       none_hash=bytes.fromhex(record["none_hash"]), lora_name=record.get("lora", ""),
                       lora_path=record.get("lora_path", ""), cache_salt=record.get("salt", ""), mm_items=items,
                       extra_keys=record.get("extra_key_scheme", "bare"),
                       lookahead=record.get("hash_lookahead_tokens", 0))
        digests = kvcast.compute_block_hashes(record["tokens"], form="bytes", **options)
        assert [digest.hex() for digest in digests] == record["block_hashes"], record["name"]
        assert kvcast.compute_block_hashes(record["tokens"], **options).tolist() == record["int64"], record["name"]
        compared += 1
    assert compared > 150


@pytest.mark.parametrize("folder", FOLDERS)
def test_payloads_decode_to_the_recorded_events(folder):
    compared = 0
    for record in records(RECORDINGS / folder / "wire/vectors.jsonl.gz"):
        if "decoded" not in record or record.get("expect") == "error":
            continue
        try:
            batch = kvcast.decode_batch(bytes.fromhex(record["hex"]))
        except kvcast.MalformedError:
            continue  # the C++ runner knows which vectors must be refused
        expected = record["decoded"]["events"]
        if len(batch.events) != len(expected):
            continue
        for event, known in zip(batch.events, expected):
            if known.get("type") != type(event).__name__:
                continue
            if "block_hashes" in known and all(isinstance(h, (int, dict)) for h in known["block_hashes"]):
                assert event.block_hashes == value(known["block_hashes"]), record["name"]
                compared += 1
            for name in ("token_ids", "block_size", "group_idx", "medium"):
                if known.get(name) is not None and not isinstance(known[name], dict):
                    tokens = known[name]
                    if name == "token_ids" and tokens and isinstance(tokens[0], list):
                        tokens = [token for pair in tokens for token in pair]
                    assert getattr(event, name) == tokens, record["name"]
    assert compared > 100


def event_of(recorded):
    kind = recorded["type"]
    if kind == "AllBlocksCleared":
        return kvcast.AllBlocksCleared()
    hashes = value(recorded["block_hashes"])
    if kind == "BlockRemoved":
        return kvcast.BlockRemoved(hashes, medium=recorded.get("medium"), group_idx=recorded.get("group_idx"))
    more = {name: recorded[name] for name in OPTIONAL if recorded.get(name) is not None}
    if recorded.get("extra_keys") is not None:
        more["extra_keys"] = value(recorded["extra_keys"])
    return kvcast.BlockStored(hashes, recorded["token_ids"], recorded["block_size"],
                              value(recorded["parent_block_hash"]), **more)


KINDS = {"full": "full_attention", "swa": "sliding_window", "chunked": "chunked_local_attention", "mamba": "mamba"}


def source_of(config):
    groups = []
    for group in config["groups"]:
        source_group = {"kind": KINDS[group["kind"]], "block_size": group["block_size"]}
        if "window" in group:
            source_group["sliding_window"] = group["window"]
        if "chunk" in group:
            source_group["chunk_size"] = group["chunk"]
        groups.append(source_group)
    return {"groups": groups, "hash_block_size": config["hash_block_size"], "release": "v0.33", "eagle": False,
            "reports_hits": False, "replay_tokens": 0, "alignment": config["scheduler_block_size"],
            "hash_algorithm": config["hash_algo"], "none_hash": config["none_hash"]}


class Prompts:
    """The prompts of a run. A prompt may begin with the tokens of an earlier request."""

    def __init__(self):
        self.requests = {}

    def follow(self, op):
        if op["op"] == "add":
            self.requests[op["req"]] = self.tokens_of(op)
        if op["op"] == "output":
            for request, token in op["tokens"].items():
                self.requests[request].append(token)

    def tokens_of(self, prompt):
        if "tokens" in prompt:
            return list(prompt["tokens"])
        return self.requests.get(prompt["from"], [])[:prompt["take"]] + list(prompt["then"])


@pytest.mark.parametrize("name", SCENARIOS)
def test_answers_equal_the_lookups_of_vllm(name):
    config, *steps = records(RECORDINGS / f"vllm-0.33/scenarios/{name}.jsonl.gz")
    indexer = kvcast.KvIndexer()
    indexer.add_source("engine", **source_of(config))
    prompts, probes, exact, hits, seq, reasons = Prompts(), 0, 0, 0, 0, set()
    for step in steps:
        for op in step.get("ops", []):
            prompts.follow(op)
        if step.get("published", True) and step.get("events"):
            if "payload_hex" in step:
                payload = bytes.fromhex(step["payload_hex"])
            else:
                payload = kvcast.encode_batch(kvcast.EventBatch([event_of(event) for event in step["events"]], ts=1.0))
            assert indexer.apply("engine", payload, seq).state == "synced"
            seq += 1
        for probe in step.get("probes", []):
            tokens = prompts.tokens_of(probe)
            if not step.get("published", True) or not tokens:
                continue
            answer = indexer.find_matches(token_ids=tokens)
            key = ("engine", 0)
            probes += 1
            exact += answer.exact[key]
            hits += probe["hit"] > 0
            reasons.add(answer.reason[key])
            assert answer.tokens[key] == probe["hit"], f"{name}: step {step['step']}: {answer.reason[key]}"
    # Nothing is exact before the first batch.
    assert probes > 100 and hits > 50 and exact >= probes - 20
    assert reasons <= {"", "the stream is connecting"}, reasons
