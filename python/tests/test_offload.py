"""OffloadManager."""
import pytest
from conftest import in_threads

import kvcast

CHUNK = 4096


def key(i, group=0):
    return i.to_bytes(32, "big") + group.to_bytes(4, "big")


def manager(chunks=4, **more):
    return kvcast.OffloadManager(chunks * CHUNK, [CHUNK], **more)


def test_the_states_of_a_chunk():
    made = manager()
    assert (made.num_slots, made.slot_bytes, made.slots_per_chunk(0), made.num_chunks) == (4, CHUNK, 1, 0)
    assert made.lookup(key(1)) == "miss"
    plan = made.prepare_store([key(1), key(2)])
    assert plan["keys"] == [key(1), key(2)] and len(set(plan["slots"])) == 2 and plan["evicted"] == []
    assert made.lookup(key(1)) == "pending"
    made.complete_store([key(1)])
    made.complete_store([key(2)], success=False)
    assert (made.lookup(key(1)), made.lookup(key(2)), made.num_chunks) == ("hit", "miss", 1)
    assert made.prepare_load([key(1)]) == plan["slots"][:1]
    made.complete_load([key(1)])
    made.touch([key(1)])
    made.finish_request(0)
    assert made.take_events() == [("stored", [key(1)])] and made.take_events() == []
    assert made.take_stats()["usage"] == 0
    made.reset()
    assert made.lookup(key(1)) == "miss" and made.take_events() == [("cleared", [])]


@pytest.mark.parametrize("policy", ["lru", "arc"])
def test_a_full_memory_evicts_the_oldest_chunk(policy):
    made = manager(policy=policy)
    for i in range(5):
        plan = made.prepare_store([key(i)])
        made.complete_store([key(i)])
        assert plan["evicted"] == ([key(0)] if i == 4 else [])
    assert ("removed", [key(0)]) in made.take_events()


def test_rules_from_v032_on_need_the_ends_of_prefixes():
    made = manager(rules="v0.33")
    with pytest.raises(kvcast.InvalidArgumentError):
        made.prepare_store([key(1)])
    assert made.prepare_store([key(1)], request_id=7, ends=[16])["keys"] == [key(1)]
    made.complete_store([key(1)])
    made.prepare_load([key(1)], 7, [16])
    made.complete_load([key(1)])
    made.finish_request(7)


def test_bad_calls_raise_and_change_nothing():
    made = manager(1)
    made.prepare_store([key(1)])
    for bad, error in [
        (lambda: made.prepare_load([key(1)]), kvcast.StateError), (lambda: made.complete_load([key(1)]), kvcast.StateError),
        (lambda: made.prepare_store([key(2)]), kvcast.ExhaustedError), (lambda: made.prepare_store([key(1, 5)]), ValueError),
        (lambda: made.prepare_store([b"x"]), ValueError), (lambda: made.prepare_store([b"x" * 37]), ValueError),
        (lambda: made.prepare_store(["x"]), TypeError), (lambda: made.prepare_store(5), TypeError),
        (lambda: made.lookup("x"), TypeError), (lambda: made.lookup(key(1), -1), TypeError),
        (lambda: made.lookup(key(1), 2**64), TypeError), (lambda: made.slots_per_chunk(1), ValueError),
        (lambda: made.slots_per_chunk(-1), ValueError), (lambda: made.finish_request(-1), TypeError),
        (lambda: made.touch([5]), TypeError), (lambda: made.complete_store([None]), TypeError),
        (lambda: kvcast.OffloadManager(-1, [CHUNK]), ValueError), (lambda: kvcast.OffloadManager(CHUNK, []), ValueError),
        (lambda: kvcast.OffloadManager(CHUNK, [0]), ValueError), (lambda: kvcast.OffloadManager(2**63, [CHUNK]), TypeError),
        (lambda: kvcast.OffloadManager(CHUNK, [CHUNK], policy="x"), ValueError),
        (lambda: kvcast.OffloadManager(CHUNK, [CHUNK], rules="x"), ValueError),
        (lambda: kvcast.OffloadManager(CHUNK, [CHUNK], page_bytes=3), ValueError),
    ]:
        with pytest.raises(error):
            bad()
    assert made.num_chunks == 1 and made.lookup(key(1)) == "pending"


def test_equal_keys_in_one_call():
    made = manager()
    plan = made.prepare_store([key(1), key(1)])
    made.complete_store(plan["keys"])
    assert made.lookup(key(1)) == "hit" and made.num_chunks == 1


def test_threads_use_a_manager():
    made = manager(64)

    def work(i):
        for n in range(200):
            try:
                plan = made.prepare_store([key(i * 1000 + n), key(n)])
                made.complete_store(plan["keys"])
                made.prepare_load([key(n)])
                made.complete_load([key(n)])
            except (kvcast.StateError, kvcast.ExhaustedError):
                pass  # another thread evicted the chunk, or stores it
            made.take_events()
            assert made.num_chunks <= 64

    in_threads(work)
    assert made.take_stats()["read_usage"] == 0
