"""KvIndexer and OverlapScores."""
import threading
import time

import pytest
from conftest import BLOCK, FULL, in_threads, payload, stored

import kvcast

np = pytest.importorskip("numpy")
KEY = ("e0", 0)


def test_an_answer_has_all_properties(indexer, prompt):
    scores = indexer.find_matches(token_ids=prompt + [1])
    assert scores.scores == {KEY: 4} and scores.tokens == {KEY: 64} and scores.with_cpu == {KEY: 64}
    assert scores.by_tier == {KEY: {"GPU": 64, "CPU": 64, "STORAGE": 64}} and scores.by_group == {KEY: [64]}
    assert scores.exact == {KEY: True} and scores.exact_with_cpu == {KEY: True} and scores.reason == {KEY: ""}
    assert scores.limited_by == {KEY: None} and scores.recompute_tokens == {KEY: 1}
    assert scores.state == {KEY: "synced"} and scores.next_seq == {KEY: 1} and scores.named_by == {KEY: "content"}
    assert len(scores) == 1 and "64" not in repr(scores) and "4" in repr(scores)
    assert scores.age_ms[KEY] > 1e9  # the batch has the time stamp 1


def test_age_is_the_time_since_the_stamp_of_the_last_batch(indexer, prompt):
    indexer.apply("e0", payload(ts=time.time()), 1)
    assert 0 <= indexer.find_matches(token_ids=prompt).age_ms[KEY] < 60e3
    indexer.apply("e0", payload(ts=0.0), 2)
    assert indexer.find_matches(token_ids=prompt).age_ms == {KEY: None}


@pytest.mark.parametrize("argument", ["token_ids", "hashes"])
def test_an_interrupted_call_raises(indexer, argument):
    class Number:
        """The second conversion to an integer would succeed."""
        converted = False

        def __index__(self):
            if self.converted:
                return 1
            self.converted = True
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        indexer.find_matches(**({"token_ids": [Number()]} if argument == "token_ids" else {"hashes": [Number()]}))


def test_a_miss_is_not_in_scores(indexer):
    scores = indexer.find_matches(token_ids=[5] * 64)
    assert scores.scores == {} and scores.tokens == {KEY: 0} and scores.limited_by == {KEY: None} and scores.exact == {KEY: True}


def test_queries_by_all_forms_of_hashes_are_equal(indexer, prompt):
    hashes = kvcast.compute_block_hashes(prompt)
    signed = np.asarray(hashes).astype(np.int64)
    for form in (hashes, np.asarray(hashes), hashes.tolist(), tuple(hashes), memoryview(hashes)):
        assert indexer.find_matches(form).tokens == {KEY: 64}
    assert indexer.find_matches(hashes=np.asarray(hashes)[::1], prompt_tokens=64).tokens == {KEY: 48}
    assert (signed < 0).any() and indexer.find_matches(signed).tokens[KEY] < 64  # negative hashes are other values
    assert indexer.find_matches([]).tokens == {KEY: 0}


def test_queries_by_all_forms_of_tokens_are_equal(indexer, prompt):
    for dtype in (np.int16, np.int32, np.uint32, np.int64, np.uint64):
        assert indexer.find_matches(token_ids=np.array(prompt + [1], dtype)).tokens == {KEY: 64}


def test_digests_of_bytes_find_blocks_of_engines_that_send_bytes(prompt):
    indexer = kvcast.KvIndexer(block_size=BLOCK)
    digests = kvcast.compute_block_hashes(prompt, form="bytes")
    store = kvcast.BlockStored(digests, prompt, BLOCK, group_idx=0, kv_cache_spec_kind="full_attention")
    indexer.apply("e0", payload(store), 0)
    assert indexer.find_matches(digests).scores == {KEY: 4}
    assert indexer.find_matches(list(digests)).scores == {KEY: 4}
    assert indexer.block_size == BLOCK and kvcast.KvIndexer().block_size is None


def test_salts_separate_prompts(prompt):
    indexer = kvcast.KvIndexer()
    hashes = kvcast.compute_block_hashes(prompt, cache_salt="s")
    store = kvcast.BlockStored(hashes, prompt, BLOCK, extra_keys=[["s"], None, None, None], group_idx=0,
                               kv_cache_spec_kind="full_attention")
    indexer.apply("e0", payload(store), 0)
    assert indexer.find_matches(token_ids=prompt + [1], cache_salt="s").tokens == {KEY: 64}
    assert indexer.find_matches(token_ids=prompt + [1]).tokens == {KEY: 0}
    assert indexer.find_matches(token_ids=prompt + [1], lora_name="l").tokens == {KEY: 0}
    assert indexer.find_matches(token_ids=prompt + [1], mm_items=[("i", 0, 4)], cache_salt="s").tokens == {KEY: 0}


def test_a_window_group_limits_a_hit():
    indexer, tokens = kvcast.KvIndexer(), list(range(128))
    groups = FULL + [{"kind": "sliding_window", "block_size": BLOCK, "sliding_window": 33}]
    indexer.add_source("e0", groups=groups, eagle=False, reports_hits=False)
    window = stored(tokens, group_idx=1, kv_cache_spec_kind="sliding_window", kv_cache_spec_sliding_window=33)
    hashes = window.block_hashes
    indexer.apply("e0", payload(stored(tokens), window, kvcast.BlockRemoved(hashes[6:], group_idx=1)), 0)
    scores = indexer.find_matches(token_ids=tokens + [1])
    assert scores.tokens == {KEY: 96} and scores.by_group == {KEY: [128, 96]} and scores.limited_by == {KEY: 1}
    assert [group["kind"] for group in indexer.groups("e0")] == ["full_attention", "sliding_window"]


def test_workers_have_ids_and_ranks(prompt):
    indexer = kvcast.KvIndexer()
    for rank in (0, 1):
        indexer.add_source(f"e-{rank}", worker_id="engine", dp_rank=rank, groups=FULL, model="m")
    indexer.apply("e-1", payload(stored(prompt)), 0)
    scores = indexer.find_matches(token_ids=prompt + [1])
    assert scores.scores == {("engine", 1): 4} and scores.tokens == {("engine", 0): 0, ("engine", 1): 64}
    assert indexer.find_matches(token_ids=prompt, sources=["e-0"]).tokens == {("engine", 0): 0}
    assert len(indexer.find_matches(token_ids=prompt, model="m")) == 2 and indexer.sources == ["e-0", "e-1"]
    with pytest.raises(kvcast.StateError):
        indexer.add_source("other", worker_id="engine", dp_rank=1)


def test_without_numbers_no_answer_is_exact(prompt):
    indexer = kvcast.KvIndexer()
    indexer.add_source("e0", groups=FULL, eagle=False, reports_hits=False)
    assert indexer.apply("e0", payload(stored(prompt))).state == "suspect"
    scores = indexer.find_matches(token_ids=prompt + [1])
    assert scores.tokens == {KEY: 64} and scores.exact == {KEY: False} and "no sequence number" in scores.reason[KEY]
    indexer.reset("e0")
    indexer.apply("e0", payload(stored(prompt)), 0)
    assert indexer.find_matches(token_ids=prompt + [1]).exact == {KEY: True}


def test_a_late_join_is_not_exact(prompt):
    indexer = kvcast.KvIndexer()
    indexer.add_source("e0", groups=FULL, eagle=False, reports_hits=False)
    assert indexer.apply("e0", payload(stored(prompt)), 5).state == "cleared"
    assert indexer.find_matches(token_ids=prompt + [1]).exact == {KEY: False}
    # After AllBlocksCleared, the index knows all blocks of the source.
    assert indexer.apply("e0", payload(kvcast.AllBlocksCleared()), 6).state == "synced"


def test_a_gap_drops_the_blocks(indexer, prompt):
    other = list(range(5000, 5064))
    result = indexer.apply("e0", payload(stored(other)), 3)
    assert (result.applied, result.seq, result.lost, result.state) == (True, 3, 2, "cleared")
    assert indexer.find_matches(token_ids=prompt + [1]).tokens == {KEY: 0}
    scores = indexer.find_matches(token_ids=other + [1])
    assert scores.tokens == {KEY: 64} and scores.exact == {KEY: False}
    assert indexer.status("e0") == {"state": "cleared", "reason": "lost_batches", "next_seq": 4, "batches": 2, "gaps": 1,
                                    "lost": 2, "duplicates": 0, "resets": 1}


def test_a_duplicate_is_ignored_and_another_batch_of_its_number_is_refused(indexer, prompt):
    result = indexer.apply("e0", payload(stored(prompt)), 0)
    assert not result.applied and result.state == "synced" and indexer.status("e0")["duplicates"] == 1
    assert indexer.find_matches(token_ids=prompt + [1]).exact == {KEY: True}
    with pytest.raises(kvcast.StateError, match="restarted"):
        indexer.apply("e0", payload(kvcast.AllBlocksCleared()), 0)
    scores = indexer.find_matches(token_ids=prompt + [1])
    assert scores.exact == {KEY: False} and scores.state == {KEY: "suspect"}
    indexer.reset("e0", "restart")
    assert indexer.find_matches(token_ids=prompt + [1]).tokens == {KEY: 0}
    assert indexer.apply("e0", payload(stored(prompt)), 0).state == "synced"


def test_an_undecodable_batch_drops_the_blocks(indexer, prompt):
    with pytest.raises(kvcast.MalformedError):
        indexer.apply("e0", b"\xc1", 1)
    scores = indexer.find_matches(token_ids=prompt + [1])
    assert scores.tokens == {KEY: 0} and scores.exact == {KEY: False} and indexer.status("e0")["next_seq"] == 2


def test_too_many_blocks_quarantine_a_source(prompt):
    indexer = kvcast.KvIndexer()
    indexer.add_source("e0", groups=FULL, max_residencies=3)
    with pytest.raises(kvcast.LimitError, match="max_residencies"):
        indexer.apply("e0", payload(stored(prompt)), 0)
    assert indexer.find_matches(token_ids=prompt + [1]).state == {KEY: "quarantined"}


def test_reset_and_remove_drop_blocks(indexer, prompt):
    indexer.reset("e0", "lost_batches")
    assert indexer.find_matches(token_ids=prompt).tokens == {KEY: 0} and indexer.status("e0")["state"] == "cleared"
    assert indexer.status("e0")["reason"] == "lost_batches"
    indexer.reclaim()
    indexer.remove_source("e0")
    assert len(indexer.find_matches(token_ids=prompt)) == 0 and indexer.sources == []
    indexer.apply("e0", payload(stored(prompt)), 0)
    assert indexer.find_matches(token_ids=prompt + [1]).tokens == {KEY: 64}


@pytest.mark.parametrize("arguments, error", [
    ({}, ValueError), ({"hashes": [1], "token_ids": [1]}, ValueError), ({"token_ids": []}, ValueError),
    ({"token_ids": [-1]}, ValueError), ({"token_ids": [2**63]}, ValueError), ({"token_ids": b"abc"}, TypeError),
    ({"token_ids": np.zeros(3)}, TypeError), ({"token_ids": np.zeros((1, 3), int)}, ValueError),
    ({"hashes": np.zeros(3, np.float32)}, TypeError), ({"hashes": [2**64]}, ValueError), ({"hashes": ["a"]}, TypeError),
    ({"hashes": "abc"}, TypeError), ({"hashes": b"abc"}, TypeError), ({"hashes": [1], "lora_name": "l"}, ValueError),
    ({"hashes": [1], "cache_salt": "l"}, ValueError), ({"hashes": [1], "mm_items": [("a", 0, 1)]}, ValueError),
    ({"token_ids": [1], "prompt_tokens": 3}, ValueError), ({"token_ids": [1], "hash_block_size": 3}, ValueError),
    ({"hashes": [1], "prompt_tokens": -1}, ValueError), ({"hashes": [1], "prompt_tokens": 2**63}, TypeError),
    ({"hashes": [1], "prompt_tokens": 2**40}, ValueError), ({"hashes": [1], "hash_block_size": -1}, ValueError),
    ({"token_ids": [1], "lora_name": "x" * 2000}, ValueError), ({"token_ids": [1], "lora_name": 3}, TypeError),
    ({"token_ids": [1], "mm_items": [("x" * 2000, 0, 1)]}, ValueError),
    ({"token_ids": [1], "mm_items": [("a", 0, 1)] * 4097}, ValueError),
    ({"token_ids": [1], "model": "unknown"}, LookupError), ({"token_ids": [1], "sources": ["unknown"]}, ValueError),
    ({"token_ids": [1], "sources": [1]}, TypeError), ({"hashes": np.zeros(2**17 + 1, np.uint64)}, ValueError),
    ({"token_ids": np.zeros(2**21 + 1, np.int64)}, ValueError), ({"unknown": 1}, TypeError),
])
def test_bad_queries_raise(indexer, arguments, error):
    with pytest.raises(error):
        indexer.find_matches(**arguments)


@pytest.mark.parametrize("sources, message", [([], "^sources: must not be empty"), (["x" * 2000], "^sources: longer than")])
def test_an_error_names_the_argument(indexer, sources, message):
    with pytest.raises(kvcast.InvalidArgumentError, match=message):
        indexer.find_matches(token_ids=[1], sources=sources)


def test_bad_sources_and_batches_raise(indexer):
    for bad, error in [
        (lambda: indexer.add_source("e0"), kvcast.StateError), (lambda: indexer.add_source(""), ValueError),
        (lambda: indexer.add_source("x", unknown=1), ValueError), (lambda: indexer.add_source("x", endpoint="y"), ValueError),
        (lambda: indexer.add_source("x", dp_rank=-1), ValueError), (lambda: indexer.add_source("x", dp_rank=2**63), TypeError),
        (lambda: indexer.add_source("x", groups=3), ValueError), (lambda: indexer.add_source("x", groups=b"x"), TypeError),
        (lambda: indexer.add_source("x", format="trtllm", tokens_per_block=32), ValueError),
        (lambda: indexer.add_source("x", hash_algorithm="md5"), ValueError), (lambda: indexer.add_source(5), TypeError),
        (lambda: indexer.add_source("x", groups=[{"kind": "full_attention", "block_size": 0}]), ValueError),
        (lambda: indexer.apply("e0", "text", 1), TypeError), (lambda: indexer.apply("e0", b"x", -1), TypeError),
        (lambda: indexer.apply("e0", b"x", 2**64), TypeError), (lambda: indexer.apply("e0", b"x", 2**64 - 1), ValueError),
        (lambda: indexer.apply(5, b"x"), TypeError), (lambda: indexer.reset("e0", "x"), ValueError),
        (lambda: indexer.reset("x"), LookupError), (lambda: indexer.remove_source("x"), LookupError),
        (lambda: indexer.status("x"), kvcast.NotFoundError), (lambda: indexer.groups("x"), kvcast.NotFoundError),
        (lambda: indexer.add_source("x", prefill_tokens_per_s=float("inf")), kvcast.InvalidArgumentError),
        (lambda: indexer.add_source("x", model="\ud800"), kvcast.InvalidArgumentError),
        (lambda: kvcast.KvIndexer(0), ValueError), (lambda: kvcast.KvIndexer("x"), TypeError),
    ]:
        with pytest.raises(error):
            bad()
    assert indexer.sources == ["e0"]


def test_threads_apply_and_query(prompt):
    """Each thread applies the batches of its own source while other threads query. No answer is wrong."""
    indexer, chains = kvcast.KvIndexer(), [list(range(i * 1000, i * 1000 + 256)) for i in range(4)]
    stop = threading.Event()

    def apply(i):
        name = f"e{i}"
        indexer.add_source(name, groups=FULL, eagle=False, reports_hits=False)
        store = stored(chains[i])
        for seq in range(200):
            event = store if seq % 2 == 0 else kvcast.BlockRemoved(store.block_hashes, group_idx=0)
            assert indexer.apply(name, payload(event), seq).state == "synced"
        indexer.apply(name, payload(store), 200)

    def query(i):
        checked = 0
        while not stop.is_set():
            scores = indexer.find_matches(token_ids=chains[i] + [1])
            for key, tokens in scores.tokens.items():
                assert tokens in (0, 256) and (tokens == 0 or key == (f"e{i}", 0))
                checked += 1
        return checked

    def work(i):
        if i >= 4:
            return query(i - 4)
        try:
            return apply(i)
        finally:
            if i == 0:
                stop.set()

    in_threads(work)
    assert all(indexer.find_matches(token_ids=chain + [1]).scores == {(f"e{i}", 0): 16} for i, chain in enumerate(chains))


def test_threads_add_reset_and_remove_one_source(prompt):
    indexer, data = kvcast.KvIndexer(), payload(stored(prompt))

    def work(i):
        for _ in range(50):
            try:
                indexer.apply("e0", data)
                indexer.status("e0")
                indexer.groups("e0")
                indexer.reset("e0")
                indexer.remove_source("e0")
                indexer.reclaim()
            except kvcast.NotFoundError:
                pass
            indexer.find_matches(token_ids=prompt)

    in_threads(work)


def test_the_gil_is_released_during_a_query():
    """A thread that only counts makes progress while another thread queries."""
    indexer, tokens = kvcast.KvIndexer(), np.arange(1 << 20)
    hashes = kvcast.compute_block_hashes(tokens)
    indexer.apply("e0", payload(kvcast.BlockStored(hashes.tolist()[:4], tokens[:64], 16, group_idx=0,
                                                   kv_cache_spec_kind="full_attention")), 0)
    done, count = threading.Event(), [0]

    def work():
        for _ in range(3):
            kvcast.compute_block_hashes(tokens)
            indexer.find_matches(token_ids=tokens)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        count[0] += 1
    thread.join()
    # Without the release, this thread runs at most once per call.
    assert count[0] > 1000
