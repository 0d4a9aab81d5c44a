"""OffloadScheduler."""
import pytest
from conftest import FULL, in_threads

import kvcast

CHUNK = 4096


def scheduler(chunks=16, **more):
    return kvcast.OffloadScheduler(FULL, chunks * CHUNK, [CHUNK], **more)


def store(made, request, tokens, blocks):
    """Computes a prompt, and stores its chunks. Returns the store jobs."""
    made.add_request(request, tokens)
    assert made.matched_tokens(request, 0)["tokens"] == 0
    plan = made.build_step([(request, 0, len(tokens), True, [blocks])])
    for job in plan["stores"]:
        assert made.on_completions([(job["job_id"], 1, True)]) == {"loaded": [], "failed": [], "released": []}
    made.request_finished(request, len(tokens))
    made.build_step()
    return plan["stores"]


def test_a_stored_prefix_is_loaded_by_another_request():
    made, tokens = scheduler(), list(range(64))
    jobs = store(made, 1, tokens, [1, 2, 3, 4])
    assert len(jobs) == 1 and jobs[0]["gpu_blocks"] == [1, 2, 3, 4] and len(jobs[0]["slots"]) == 4
    events = made.take_events()
    assert [hash for event in events for hash in event.block_hashes] == kvcast.compute_block_hashes(tokens).tolist()
    assert {event.medium for event in events} == {"CPU"} and made.take_events() == []
    assert made.num_requests == 0 and not made.has_pending_work

    made.add_request(2, tokens + [1, 2, 3])
    match = made.matched_tokens(2, 0, now_ms=5)
    assert match == {"tokens": 64, "tail_boundary": None, "within_step": False}
    made.update_after_alloc(2, 64, [[5, 6, 7, 8, 9]])
    plan = made.build_step()
    (load,) = plan["loads"]
    assert load["gpu_blocks"] == [5, 6, 7, 8] and load["slots"] == jobs[0]["slots"] and made.has_pending_work
    assert made.on_completions([(load["job_id"], 1, True)])["loaded"] == [2]
    assert made.take_stats()["failed_loads"] == 0


def test_the_events_of_the_tier_give_answers_with_cpu(prompt):
    made = scheduler()
    store(made, 1, prompt, [1, 2, 3, 4])
    indexer = kvcast.KvIndexer()
    indexer.add_source("e0", groups=FULL, eagle=False, reports_hits=False, offload_rule="connector")
    indexer.apply("e0", kvcast.encode_batch(kvcast.EventBatch(made.take_events(), ts=1.0)), 0)
    scores = indexer.find_matches(token_ids=prompt + [1])
    assert scores.tokens == {("e0", 0): 0} and scores.with_cpu == {("e0", 0): 64}


def test_failed_copies():
    made, tokens = scheduler(), list(range(64))
    made.add_request(1, tokens)
    (job,) = made.build_step([(1, 0, 64, True, [[1, 2, 3, 4]])])["stores"]
    made.on_completions([(job["job_id"], 1, False), (999, 1, True)])
    stats = made.take_stats()
    assert (stats["failed_stores"], stats["unknown_completions"]) == (1, 1) and made.take_events() == []


def test_late_loads_sampled_tokens_and_resets():
    made, tokens = scheduler(prompt_only=False), list(range(64))
    store(made, 1, tokens, [1, 2, 3, 4])
    made.add_request(2, tokens + [9])
    made.append_tokens(2, [1, 2, 3])
    assert made.matched_tokens(2, 0, now_ms=0)["tokens"] == 64
    made.update_after_alloc(2, 64, [[5, 6, 7, 8, 9]])
    with pytest.raises(kvcast.StateError):
        made.reset()
    (load,) = made.build_step()["loads"]
    assert made.take_late_loads(now_ms=0) == [] and made.take_late_loads(now_ms=10**6) == [(2, load["job_id"])]
    assert made.on_completions([(load["job_id"], 1, True)])["released"] == [load["job_id"]]
    made.reset()
    made.add_request(3, tokens + [9])
    assert made.matched_tokens(3, 0)["tokens"] == 0
    assert made.request_finished(3, 0, aborted=True) is False


def test_bad_calls_raise_and_change_nothing():
    made = scheduler()
    made.add_request(1, list(range(64)))
    for bad, error in [
        (lambda: made.add_request(1, [1]), kvcast.StateError), (lambda: made.add_request(2, [-1]), ValueError),
        (lambda: made.add_request(-1, [1]), TypeError), (lambda: made.add_request(2**64, [1]), TypeError),
        (lambda: made.add_request(2, [1], max_offload_tokens=-1), ValueError),
        (lambda: made.append_tokens(9, [1]), LookupError), (lambda: made.append_tokens(1, [2**63]), ValueError),
        (lambda: made.matched_tokens(9, 0), LookupError), (lambda: made.matched_tokens(1, 65), ValueError),
        (lambda: made.matched_tokens(1, -1), ValueError), (lambda: made.update_after_alloc(9, 16, [[1]]), LookupError),
        (lambda: made.update_after_alloc(1, 16, []), ValueError), (lambda: made.update_after_alloc(1, 16, [[1]]), kvcast.KvcastError),
        (lambda: made.update_after_alloc(1, -16, [[1]]), ValueError), (lambda: made.update_after_alloc(1, 16, [[-1]]), TypeError),
        (lambda: made.update_after_alloc(1, 16, [[2**32]]), TypeError), (lambda: made.build_step([(9, 0, 1, True, [[1]])]), LookupError),
        (lambda: made.build_step([(1, 0, 65, True, [[1]])]), ValueError), (lambda: made.build_step([(1, -1, 1, True, [[1]])]), ValueError),
        (lambda: made.build_step([(1, 1, 2**63 - 1, True, [[1]])]), ValueError),
        (lambda: made.build_step([(1, 0, 1, True, [[1], [2]])]), ValueError),
        (lambda: made.build_step([(1, 0, 1, True, [[1]]), (1, 0, 1, True, [[1]])]), ValueError),
        (lambda: made.build_step(preempted=[9]), LookupError), (lambda: made.build_step(tails=[(1, 1, 1, 16)]), ValueError),
        (lambda: made.build_step(tails=[(1, 0, 1, -1)]), ValueError), (lambda: made.build_step([(1, 0)]), TypeError),
        (lambda: made.on_completions([(1, 0, True)]), ValueError), (lambda: made.on_completions([(1, 2, True)]), ValueError),
        (lambda: made.on_completions([1]), TypeError), (lambda: made.request_finished(9, 0), LookupError),
        (lambda: made.request_finished(1, 65), ValueError), (lambda: made.take_late_loads("x"), TypeError),
        (lambda: kvcast.OffloadScheduler([], CHUNK, []), ValueError), (lambda: scheduler(num_workers=0), ValueError),
        (lambda: scheduler(tokens_per_hash=0), ValueError), (lambda: scheduler(tokens_per_hash=7), ValueError),
        (lambda: scheduler(blocks_per_chunk=0), ValueError), (lambda: scheduler(algo="x"), ValueError),
        (lambda: kvcast.OffloadScheduler(FULL, CHUNK, []), ValueError), (lambda: kvcast.OffloadScheduler(5, CHUNK, [1]), ValueError),
        (lambda: kvcast.OffloadScheduler([{"kind": "x", "block_size": 16}], CHUNK, [CHUNK]), ValueError),
        (lambda: kvcast.OffloadScheduler([{"kind": "full_attention", "block_size": float("nan")}], CHUNK, [CHUNK]),
         kvcast.InvalidArgumentError),
    ]:
        with pytest.raises(error):
            bad()
    assert made.num_requests == 1 and made.build_step() == {"flush": [], "loads": [], "stores": [], "before_step": []}


def test_a_load_of_too_many_tokens_is_refused():
    made = scheduler()
    made.add_request(1, list(range(64)))
    made.matched_tokens(1, 0)
    for external_tokens in (65, 2**62, 2**63 - 16, 2**63 - 1):
        with pytest.raises(kvcast.InvalidArgumentError):
            made.update_after_alloc(1, external_tokens, [[1, 2, 3, 4]])
    assert made.build_step()["loads"] == []


def test_threads_use_a_scheduler():
    made = scheduler(64)

    def work(i):
        for n in range(50):
            request, tokens = i * 1000 + n, list(range(i * 10, i * 10 + 32 + n % 3))
            made.add_request(request, tokens)
            made.matched_tokens(request, 0)
            plan = made.build_step([(request, 0, len(tokens), True, [[i * 4 + 1, i * 4 + 2, i * 4 + 3]])])
            made.on_completions([(job["job_id"], 1, True) for job in plan["stores"] + plan["loads"]])
            made.request_finished(request, len(tokens))
            plan = made.build_step()
            made.on_completions([(job["job_id"], 1, True) for job in plan["stores"] + plan["loads"]])
            made.take_events()
            made.take_stats()

    in_threads(work)
    made.build_step()
    assert made.num_requests == 0
