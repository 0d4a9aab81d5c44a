"""Helpers of the tests: a store event, a payload, an index, and threads that start together."""
import threading

import pytest

import kvcast

BLOCK = 16
FULL = [{"kind": "full_attention", "block_size": BLOCK}]


def stored(tokens, block_size=BLOCK, **more):
    """Returns the BlockStored event of all whole blocks of a prompt."""
    more = {"group_idx": 0, "kv_cache_spec_kind": "full_attention", **more}
    return kvcast.BlockStored(kvcast.compute_block_hashes(tokens, block_size), tokens, block_size, **more)


def payload(*events, ts=1.0):
    return kvcast.encode_batch(kvcast.EventBatch(events, ts=ts))


def in_threads(work, count=8):
    """Calls work(i) in threads that begin together. Returns the results in order; an exception of a thread is raised."""
    barrier = threading.Barrier(count)
    results, errors = [None] * count, []

    def run(i):
        try:
            barrier.wait()
            results[i] = work(i)
        except BaseException as error:  # noqa: BLE001 - the test raises it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


@pytest.fixture
def prompt():
    return list(range(1000, 1064))


@pytest.fixture
def indexer(prompt):
    """An index whose source e0 holds the whole blocks of the prompt."""
    made = kvcast.KvIndexer()
    made.add_source("e0", groups=FULL, eagle=False, reports_hits=False, offload_rule="connector")
    made.apply("e0", payload(stored(prompt)), 0)
    return made
