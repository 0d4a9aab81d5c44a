"""The seeds of the fuzz targets. FORMATS maps each format to a function that yields the seeds. The argument of the
function is the root of the repository.

SPDX-License-Identifier: Apache-2.0
"""
import gzip
import json
import re
import struct

import msgpack

BATCHES_MAX = 40  # the captures have this number of batches


def wire(source):
    for path in sorted((source / "schemas" / "vectors").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            yield bytes.fromhex(record.get("hex") or record.get("payload"))
    for path in sorted((source / "tests" / "data" / "recordings").glob("*/wire/vectors.jsonl.gz")):
        for line in gzip.decompress(path.read_bytes()).splitlines():
            yield bytes.fromhex(json.loads(line)["hex"])


def compact(value):
    return json.dumps(value, separators=(",", ":")).encode()


def examples(source):
    """Yields the JSON objects of the examples in README.md and docs."""
    def objects(value):
        if isinstance(value, dict):
            yield value
            for part in value.values():
                yield from objects(part)
        elif isinstance(value, list):
            for part in value:
                yield from objects(part)
    for path in [source / "README.md", *sorted((source / "docs").glob("*.md"))]:
        for text in re.findall(r"\{\"[^`']*\}", path.read_text(encoding="utf-8")):
            try:
                yield from objects(json.loads(text))
            except json.JSONDecodeError:
                continue


QUERIES = [
    {"tokens": [1, 2, 300, 70000, 2**40]}, {"tokens": [1, 2**63 - 1]}, {"tokens": [1, 2**63]},
    {"hashes": [1, -7, 2**63, "00ff" * 8], "hash_block_size": 16, "prompt_tokens": 80, "model": "m"},
    {"tokens": [5], "cache_salt": "s", "lora_name": "a", "lora_path": "/p", "workers": ["w"], "routing_group": "g"},
    {"tokens": [5], "mm_items": [{"identifier": "i", "offset": 0, "length": 1}]},
    {"tokens": [5], "prompt_embeds_digests": [{"block_size": 16, "digests": ["ab" * 32]}]},
    {"tokens": [1], "request_id": "r", "temperature": 0.5, "ttft_slo_ms": 100, "book": False,
     "vllm_checkpoint_token": 7},
    {"token_ids": [1, 2], "model_name": "m", "tenant_id": "t", "block_size": 16, "lora_name": None, "cache_salt": "s"},
    {"block_hashes": [1, -2, "ab" * 16], "model_name": "m", "routing_group": "g"},
]


def query(source):
    for value in [*QUERIES, *examples(source)]:
        yield compact(value)
        yield json.dumps(value, indent=1).encode()
        yield msgpack.packb(value)
    yield msgpack.packb({"hashes": [b"\x01" * 32, "0a0b", 3, -3]})


SOURCES = [
    {"name": "e", "model": "m", "topic": "kv-events", "endpoint": "tcp://127.0.0.1:5557",
     "replay_endpoint": "tcp://127.0.0.1:5657", "groups": [{"kind": "full_attention", "block_size": 16}]},
    {"name": "e", "endpoint": "tcp://[::1]:5557", "bind": True, "server_key": "k" * 40, "insecure": False,
     "groups": [{"kind": "sliding_window", "block_size": 16, "sliding_window": 1024, "eagle": True},
                {"kind": "chunked_local_attention", "block_size": 16, "chunk_size": 64, "prefix_cacheable": False},
                {"kind": "mamba", "block_size": 16}], "hash_block_size": 16, "gpu_blocks": 100,
     "max_residencies": 1000, "alignment": 16, "blocks_per_chunk": 2, "offload_rule": "connector"},
    {"name": "t", "endpoint": "http://127.0.0.1:8000/kv_cache_events", "format": "trtllm", "window_sizes": [4096, 512],
     "tokens_per_block": 32, "partial_reuse": False, "largest_is_window": True, "poll_ms": 20},
    {"name": "p", "endpoint": "push", "format": "trtllm", "window_sizes": [4096], "tokens_per_block": 32},
    {"name": "m", "endpoint": "tcp://127.0.0.1:1", "format": "mooncake", "tenant_id": "t", "backend_id": "b"},
    {"name": "h", "endpoint": "ipc:///tmp/a", "hash_algorithm": "sha256_cbor", "hash_seed": "0", "none_hash": "ab",
     "candidate_seeds": ["1"], "candidate_none_hashes": ["cd"], "release": "v0.33", "eagle": False, "chunk_size": 8,
     "lookahead": 1, "replay_tokens": 3, "lora_paths": {"a": "/p"}, "reports_hits": True, "sparse_alignment": 64,
     "sparse_retention": 2, "sparse_rules": "v0.32", "kv_bytes_per_token": 1000, "prefill_tokens_per_s": 2000,
     "cpu_load_bytes_per_s": 10**9, "storage_load_bytes_per_s": 10**8, "zero_parent_is_root": True,
     "repeats_are_refreshes": True, "ranks_on": "tag", "data_parallel_rank": 1, "data_parallel_size": 2,
     "instance_id": 4, "routing_group": "g"},
    {"instance_id": "i/1", "endpoint": "tcp://127.0.0.1:5557", "model_name": "a/b", "block_size": 16, "dp_rank": 1,
     "routing_group": "g", "replay_endpoint": "tcp://127.0.0.1:5657", "additional_salt": ""},
    {"instance_id": 7, "model_name": "m", "tenant_id": "g"},
    {"request_id": "r", "event": "admitted", "reused_tokens": 16, "next_seq": 3},
    {"request_id": "r", "event": "finished"}, {"request_id": "r", "event": "first_token"},
    {"worker": "w", "event": "load", "queued_requests": 3},
    {"worker": "w", "loads": [{"tier": "CPU", "bytes": 1e9, "seconds": 0.5},
                              {"tier": "STORAGE", "bytes_total": 1e10, "seconds_total": 5}]},
]
FLAGS = ["e=tcp://127.0.0.1:5557,tcp://127.0.0.1:5657,topic=t,groups=full_attention:16+sliding_window:16:64:eagle",
         "e=tcp://a:1,lora_paths=a:/p+b:/q,gpu_blocks=10,insecure=true,window_sizes=1+2,candidate_seeds=0+1"]


def registration(source):
    for value in [*SOURCES, *examples(source)]:
        yield compact(value)
    for flag in FLAGS:
        yield b"--source=" + flag.encode()
    yield compact({"sources": SOURCES})
    yield compact({"lookup": "_kv._tcp.engines.test", "source": {
        "name": "{host}", "instance_id": "{host}/{port}", "endpoint": "tcp://{host}:{port}",
        "replay_endpoint": "tcp://{host}:5657"}})


def http(_):
    head = b"Host: localhost:8080\r\nUser-Agent: t\r\n"
    trace = b"traceparent: 00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01\r\n"
    get = b"GET /v1/state?worker=a%20b&limit=3+4 HTTP/1.1\r\n" + head + trace + b"\r\n"
    post = b"POST /v1/query HTTP/1.1\r\n" + head + b"Content-Length: 4\r\nExpect: 100-continue\r\n\r\nbody"
    chunks = (b"POST /p HTTP/1.1\r\n" + head + b"Transfer-Encoding: chunked\r\n\r\n"
              b"3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: x\r\n\r\n")
    no_chunk = b"POST /p HTTP/1.1\r\n" + head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield from (get, post, chunks, no_chunk, get + post + get, b"\r\n" + chunks + get)
    yield b"DELETE /v1/sources?name=%2f HTTP/1.0\r\nOrigin: http://a\r\nConnection: keep-alive\r\n\r\n" + post
    yield b"GET /%2 HTTP/1.1\r\n" + head + b"\r\n"
    yield (b"GET / HTTP/1.1\r\nHost: [::1]:80\r\nX: a\r\n b\r\nX: c\r\nAuthorization: Bearer t\r\n"
           b"Origin: http://[::1]:80\r\n\r\n")
    for host in (b"router.example:80", b"127.0.0.1", b"ROUTER.example", b"evil.example", b"127.1"):
        yield b"POST / HTTP/1.1\r\nHost: " + host + b"\r\nOrigin: http://" + host + b"\r\n\r\n"
    yield b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"
    yield b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n"
    yield b"HTTP/1.0 404 no\r\n\r\nto the end"


def part(payload):
    """A part of an input: its length, and its bytes."""
    return struct.pack("<H", len(payload)) + payload


def mooncake(_):
    store = {"event_type": "stored", "tenant_id": "default", "object_key": "o", "medium": "cpu", "group_id": "1",
             "block_size": 4, "seq_hashes": [1, -2, b"\x03" * 32], "parent_hash": 9, "token_ids": list(range(12)),
             "base_block_idx": 2, "lora_name": "a", "additional_salt": "s", "backend_id": "b"}
    on_disk = {**store, "medium": "disk"}
    changed = {**store, "seq_hashes": [5]}
    named = {"event_type": "stored", "tenant_id": "default", "medium": "disk", "seq_hashes": [7], "block_size": 4}
    remove = {"event_type": "removed", "tenant_id": "default", "object_key": "o", "medium": "cpu"}
    clear = {"event_type": "cleared", "tenant_id": "default"}
    other = {"event_type": "other", "tenant_id": "default"}
    bad = {"event_type": "stored", "group_id": "x"}
    large = {**store, "seq_hashes": list(range(8)), "token_ids": None}
    repeated = [large, *[{**remove, "medium": "disk"}] * 18]
    for events in (repeated, [clear, named, clear], [store], [store, on_disk, remove, remove], [store, changed],
                   [named, clear, clear, named],
                   [other, bad, store], [{**store, "tenant_id": "t"}, {**remove, "seq_hashes": [1]}], []):
        payload = msgpack.packb([1790000000250, events, 0])
        yield part(payload)
        yield part(payload) + part(msgpack.packb([1, [remove, {**remove, "medium": "disk"}], None]))


def trtllm(_):
    def block(number, level=0, **more):
        return {"type": "stored_block", "block_hash": number, "cache_level": level, "mm_keys": [],
                "tokens": [{"token_id": number, "token_extra_id": 0}, {"token_id": 2, "token_extra_id": 0}], **more}

    def event(number, data, window=4096, **more):
        return {"event_id": number, "window_size": window, "data": data, **more}

    def stored(*blocks, parent=None):
        return {"type": "stored", "parent_hash": parent, "blocks": list(blocks)}
    created = event(0, {"type": "created", "num_blocks_per_cache_level": [4, 0]})
    first = event(1, stored(block(1), block(2, 1), block(3)))
    second = event(2, stored(block(4, cache_salt="s"), parent="ab"), 512)
    removed = event(3, {"type": "removed", "block_hashes": [1, 9]})
    to_host = event(4, {"type": "updated", "block_hash": 3, "cache_level": {"old_value": 0, "new_value": 1}})
    gap = event(9, stored(block(-5), block("text")))
    other = event(3, stored(block(6)), attention_dp_rank=1)
    texts = [[created], [created, first, second], [removed, to_host], [gap, created], [other], removed, first]
    for k in range(len(texts)):
        yield b"\n".join(compact(text) for text in texts[:k + 1])
        yield compact(texts[k])


def capture(source):
    batches = [payload for payload in wire(source) if len(payload) < 400]
    for k in range(0, BATCHES_MAX, 4):
        records = [struct.pack("<dIQI", 1.5e9 + i, 4, i, len(payload)) + b"kv-1" + payload
                   for i, payload in enumerate(batches[k:k + 4])]
        yield b"kvcast-capture-1\n" + b"".join(records)
        yield gzip.compress(b"kvcast-capture-1\n" + b"".join(records), mtime=0)
    yield bytes.fromhex("28b52ffd0000010000")  # a zstd frame without content


def keys(_):
    key = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"
    other = "D:)Q[IlAW!ahhC2ac:9*A}h:p?([4%wOTJ%JR%cs"
    yield from (text.encode() for text in (
        key, key + "\n", f"# routers\n\nsubscribe,replay {key} router-1 of rack 7\n snapshot\t{key}\nsubscribe {other}",
        f"subscribe,replay,snapshot {other}\r\n", "# tokens\n\nquery q-token\nroute\tr\nobserve  o  \r\nadmin a",
        "admin secret\nquery other"))


def gauge(_):
    def message(origin, seq, *workers, version=1):
        return part(msgpack.packb([version, origin, 7, seq, 100, 1.5, 0.3, list(workers)]))

    first, second = ["a", 1, 1000, 500000, 2, 4096], ["b", 0, 0, 0, 1, 16]
    yield message("r1", 300, first, second)
    yield message("r1", 1, first) + message("r2", 1, first, second) + message("r1", 2, second)
    yield message("r1", 2, second) + message("r1", 1, first) + message("own", 1, first)
    yield message("r1", 1, version=2)
    yield message("r1", 1, ["c", 2**32, 2**52, 2**52, 2**32, 2**52]) + message("r2", 2**64 - 1, ["c", 1, 2**52, 1, 1, 1])


FORMATS = {"wire": wire, "query": query, "registration": registration, "http": http, "mooncake": mooncake,
           "trtllm": trtllm, "capture": capture, "keys": keys, "gauge": gauge}
