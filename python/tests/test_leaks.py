"""Memory and references stay constant over many calls. KVCAST_LEAK_CALLS: calls of each case (default 20000; 0: the
cases are skipped)."""
import gc
import itertools
import os
import sys

import pytest
from conftest import FULL, payload, stored

import kvcast

np = pytest.importorskip("numpy")
CALLS = int(os.environ.get("KVCAST_LEAK_CALLS", "20000"))
# A lost reference to the smallest Python object costs more.
ALLOWED_BYTES_PER_CALL = 8


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


PROMPT = list(range(64))
TOKENS = np.arange(64)
TENSOR = np.zeros((4, 64), np.uint8)
STORE = stored(PROMPT)
PAYLOAD = payload(STORE, kvcast.BlockRemoved([1, b"\1"]))
BATCH = kvcast.EventBatch([STORE], ts=1.0)
CANDIDATES = [kvcast.Candidate(("a", 0), 3, compute_s=1.0), kvcast.Candidate(("b", 0), 4, compute_s=2.0)]


def indexer():
    made = kvcast.KvIndexer()
    made.add_source("e0", groups=FULL)
    made.apply("e0", payload(STORE), 0)
    return made


def refused(call, *arguments, **more):
    try:
        call(*arguments, **more)
    except (kvcast.KvcastError, TypeError):
        return
    raise AssertionError("no error")


def read_all(index):
    scores = index.find_matches(token_ids=TOKENS)
    return [getattr(scores, name) for name in ("scores", "tokens", "by_group", "by_tier", "limited_by", "exact", "reason",
                                               "age_ms", "state", "next_seq", "named_by")]


def cycle(index, sequence=iter(range(1, 1 << 62))):
    seq = next(sequence)
    index.apply("e0", payload(STORE if seq % 2 == 0 else kvcast.BlockRemoved(STORE.block_hashes)), seq)


def offload():
    made = kvcast.OffloadManager(4 * 4096, [4096])

    def call(keys=[i.to_bytes(36, "little")[:32] + bytes(4) for i in range(64)], positions=iter(range(1 << 62))):
        key = keys[next(positions) % 64]
        made.complete_store(made.prepare_store([key])["keys"])
        made.complete_load([key] if made.prepare_load([key]) else [])
        made.take_events()

    return call


def copies():
    made, jobs = kvcast.BlockCopier([[np.zeros((4, 64), np.uint8)]], 4, 64), itertools.count()

    def call():
        job = next(jobs)
        made.submit(job, job % 2 == 0, [1, 2], [2], [0], [0, 1])
        made.wait([job])
        assert made.poll() == [(job, None)]

    return call


def evictions(policy):
    made, keys = kvcast.EvictionOrder(4, policy=policy), [bytes([i]) * 32 + bytes(4) for i in range(64)]
    numbers = itertools.count()

    def call():
        key = keys[next(numbers) % 64]
        made.store_misses(keys[:2])
        made.insert(key)
        made.set_idle(key, True)
        made.charge_reuse(key)
        made.evict(1, [key])

    return call


def cases():
    index = indexer()
    yield "hash", lambda: kvcast.compute_block_hashes(TOKENS)
    yield "hash list", lambda: kvcast.compute_block_hashes(PROMPT, form="bytes").tolist()
    yield "hash refused", lambda: refused(kvcast.compute_block_hashes, [1, 2, -1])
    yield "decode", lambda: kvcast.decode_batch(PAYLOAD).events[0].token_ids
    yield "decode refused", lambda: refused(kvcast.decode_batch, b"\xc1")
    yield "encode", lambda: kvcast.encode_batch(BATCH)
    yield "event", lambda: kvcast.BlockStored([1, b"2"], PROMPT, 16, extra_keys=[["a", ("b", 1)], None], medium="GPU")
    yield "event refused", lambda: refused(kvcast.BlockStored, [1], [1], 1, extra_keys=[5])
    yield "find by tokens", lambda: index.find_matches(token_ids=TOKENS)
    yield "find by hashes", lambda: index.find_matches(STORE.block_hashes)
    yield "find refused", lambda: refused(index.find_matches, token_ids=np.zeros(3))
    yield "scores", lambda: read_all(index)
    cycled = indexer()
    yield "apply", lambda: cycle(cycled)
    yield "apply refused", lambda: refused(index.apply, "e0", 5, 1)
    yield "select", lambda: kvcast.Selector().select(CANDIDATES).worker
    yield "offload", offload()
    yield "copy", copies()
    yield "copy refused", lambda: refused(kvcast.BlockCopier, [[TENSOR, TENSOR[:2]]], 4, 64)
    yield "evict from lru", evictions("lru")
    yield "evict from arc", evictions("arc")


@pytest.mark.skipif(CALLS == 0, reason="KVCAST_LEAK_CALLS is 0")
@pytest.mark.parametrize("name, call", list(cases()), ids=lambda value: value if isinstance(value, str) else "")
def test_calls_do_not_leak(name, call):
    for _ in range(CALLS // 4 + 2000):  # fills caches and pools
        call()
    gc.collect()
    before, blocks = resident(), sys.getallocatedblocks()
    for _ in range(CALLS):
        call()
    gc.collect()
    assert sys.getallocatedblocks() - blocks < 200, "Python objects"
    assert resident() - before < ALLOWED_BYTES_PER_CALL * CALLS + (1 << 20), "memory of the process"


def test_arguments_keep_their_reference_counts():
    index, salt = indexer(), "a salt that is not interned"
    objects = [TOKENS, PROMPT, PAYLOAD, STORE, salt]
    before = [sys.getrefcount(one) for one in objects]
    for _ in range(100):
        kvcast.compute_block_hashes(PROMPT)
        kvcast.compute_block_hashes(TOKENS, cache_salt=salt)
        index.find_matches(token_ids=TOKENS, cache_salt=salt)
        kvcast.decode_batch(PAYLOAD)
        kvcast.EventBatch([STORE])
        refused(kvcast.compute_block_hashes, TOKENS, 0)
        refused(index.find_matches, token_ids=TOKENS, hash_block_size=1)
    assert [sys.getrefcount(one) for one in objects] == before
