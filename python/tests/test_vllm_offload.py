"""The offloading classes of the plug-in for vLLM, with a stand-in for vLLM 0.32 and 0.33 (folder vllm_stand_in).
tests/live/offload_manager.py compares them with a real vLLM."""
import dataclasses
import importlib
import logging
import pathlib
import sys
from types import SimpleNamespace

import pytest

import kvcast
import kvcast.vllm as plugin

np = pytest.importorskip("numpy")

STAND_IN = pathlib.Path(__file__).parent / "vllm_stand_in"
RELEASES = {"0.32.0": "v0.32", "0.33.0": "v0.33"}
BLOCK = 16


def forget_vllm():
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm" or name.startswith("kvcast._vllm")]:
        del sys.modules[name]
    for name in [name for name in vars(kvcast) if name.startswith("_vllm")]:
        delattr(kvcast, name)


@pytest.fixture(params=RELEASES)
def vllm(monkeypatch, request):
    """The modules of a fresh stand-in: attributes of this object."""
    forget_vllm()
    monkeypatch.syspath_prepend(str(STAND_IN))
    importlib.import_module("vllm").__version__ = request.param
    names = {"base": "base", "manager": "cpu.manager", "spec": "cpu.spec", "common": "cpu.common",
             "policies_base": "cpu.policies.base", "policies": "cpu.policies.standard"}
    modules = {name: importlib.import_module("vllm.v1.kv_offload." + path) for name, path in names.items()}
    rules = RELEASES[request.param]
    yield SimpleNamespace(**modules, release=request.param, rules=rules, v033=rules == "v0.33")
    forget_vllm()


def key(i, group=0):
    return i.to_bytes(32, "big") + group.to_bytes(4, "big")


def keys_of(*numbers):
    return [key(i) for i in numbers]


def context_of(vllm, *numbers, name="r"):
    """A request whose prompt has these chunks, in this order."""
    made = vllm.base.ReqContext(name)
    for place, i in enumerate(numbers, 1):
        made.set_offload_key_position(key(i), place * BLOCK)
    return made


def manager_of(vllm, chunks=4, policy="lru", events=True, threshold=0, **more):
    return plugin.KvcastOffloadingManager(chunks, 2, policy, events, threshold, 64, vllm.rules, **more)


def store(made, context, *numbers, success=True):
    plan = made.prepare_store(keys_of(*numbers), context)
    made.complete_store(plan.keys_to_store, context, success)
    return plan


def events_of(made):
    return [(event.keys, event.medium.value, event.removed, getattr(event, "metadata_only", False))
            for event in made.take_events()]


def config_of(groups=(0,), events=True, block_bytes=64, blocks_per_chunk=1, **extra):
    return SimpleNamespace(
        groups=[SimpleNamespace(group_id=group) for group in groups], enable_kv_cache_events=events,
        replicated_layout=True, worker_kv_bytes_per_block=block_bytes,
        cache=SimpleNamespace(blocks_per_chunk=blocks_per_chunk),
        extra_config={"cpu_bytes_to_use": 24 * block_bytes * blocks_per_chunk} | extra)


def spec_of(**more):
    return plugin.KvcastOffloadingSpec(config_of(**more))


# The manager.


def test_lookup_and_the_states_of_a_chunk(vllm):
    made, context, results = manager_of(vllm), context_of(vllm, 1, 2), vllm.base.LookupResult
    assert isinstance(made, vllm.base.OffloadingManager) and made.medium is vllm.base.Medium.CPU
    assert made.on_new_request(context) == vllm.base.RequestOffloadingContext()
    assert made.lookup(key(1), context) is results.MISS
    plan = made.prepare_store(keys_of(1, 2), context)
    assert (plan.keys_to_store, plan.store_spec.block_ids.tolist(), plan.evicted_keys) == (keys_of(1, 2), [0, 1], [])
    assert type(plan.store_spec) is vllm.common.CPULoadStoreSpec and made.lookup(key(1), context) is results.HIT_PENDING
    assert made.complete_store(iter(keys_of(1, 2)), context) is None
    assert made.lookup(key(1), context) is results.HIT
    assert made.get_load_source(key(1), context).value == "host"
    spec = made.prepare_load(iter(keys_of(2, 1)), context)
    assert type(spec) is vllm.common.CPULoadStoreSpec and spec.block_ids.tolist() == [1, 0]
    assert made.complete_load(keys_of(2, 1), context) is None
    assert made.touch(keys_of(1), context) is None and made.on_request_finished(context) is None
    assert made.has_pending_work() is False and made.on_schedule_end(None) is None and made.shutdown() is None
    again = made.prepare_store(iter(keys_of(1, 2)), context)
    assert (again.keys_to_store, again.store_spec.block_ids.tolist(), again.evicted_keys) == ([], [], [])


def test_calls_in_a_wrong_state_raise(vllm):
    made, context = manager_of(vllm), context_of(vllm, 1)
    for call in (made.prepare_load, made.complete_load):
        with pytest.raises(kvcast.StateError):
            call(keys_of(1), context)
    with pytest.raises(kvcast.InvalidArgumentError):
        made.prepare_store([key(1, 2)], context)  # there are two groups
    assert made.prepare_store([key(1, 1)], context).keys_to_store == [key(1, 1)]


def test_a_full_memory(vllm):
    made = manager_of(vllm, 2)
    first, second = context_of(vllm, 1, 2), context_of(vllm, 3, 4, 5, name="s")
    plan = made.prepare_store(keys_of(1, 2), first)
    assert made.prepare_store(keys_of(3), second) is None  # nothing can leave
    made.complete_store(plan.keys_to_store, first)
    made.on_request_finished(first)
    assert made.prepare_store(keys_of(3, 4, 5), second) is None
    plan = made.prepare_store(keys_of(3), second)
    assert plan.evicted_keys == keys_of(2) and plan.store_spec.block_ids.tolist() == [1]


def test_the_end_of_a_prefix_leaves_first(vllm):
    """In 0.33, all chunks of a request have the same rank. In 0.32, each chunk has a rank of its own."""
    made = manager_of(vllm, 3)
    context = context_of(vllm, 1, 2, 3)
    for i in (3, 1, 2):
        store(made, context, i)
    other = context_of(vllm, 4, 5, 6, name="s")
    assert store(made, other, 4, 5, 6).evicted_keys == (keys_of(3, 2, 1) if vllm.v033 else keys_of(3, 1, 2))
    made.on_request_finished(other)
    assert store(made, context_of(vllm, 7, 8, 9, name="t"), 7, 8, 9).evicted_keys == keys_of(6, 5, 4)


def test_arc_keeps_a_chunk_that_two_requests_used(vllm):
    made = manager_of(vllm, 3, "arc")
    first, second = context_of(vllm, 1, 2, 3), context_of(vllm, 1, name="s")
    store(made, first, 1, 2, 3)
    made.on_request_finished(first)
    made.prepare_load(keys_of(1), second)
    made.complete_load(keys_of(1), second)
    made.on_request_finished(second)
    assert store(made, context_of(vllm, 4, 5, name="t"), 4, 5).evicted_keys == keys_of(3, 2)


def test_keys_without_a_position(vllm):
    made, context = manager_of(vllm, 2), vllm.base.ReqContext("r")
    store(made, context, 1, 2)
    made.on_request_finished(context)
    made.on_request_finished(context)
    made.on_request_finished(vllm.base.ReqContext("unknown"))
    assert len(store(made, context_of(vllm, 3, name="s"), 3).evicted_keys) == 1


def test_a_request_of_another_manager(vllm):
    """Each manager numbers its requests. The number of one manager must have no effect in another."""
    made, other = manager_of(vllm, 2), manager_of(vllm, 2)
    first, shared = context_of(vllm, 1), context_of(vllm, 2, name="s")
    other.lookup(key(2), shared)
    store(made, first, 1)
    store(made, shared, 2)
    made.on_request_finished(first)  # chunk 1 is the newest now
    store(other, first, 1)
    store(other, context_of(vllm, 2, name="t"), 2)
    other.on_request_finished(shared)  # no effect: `shared` now holds its number in `made`
    more = context_of(vllm, 3, 4, name="u")
    assert store(made, more, 3, 4).evicted_keys == keys_of(2, 1)
    assert store(other, more, 3, 4).evicted_keys == keys_of(1, 2)


def test_requests_have_numbers_of_their_own(vllm):
    """The uses of one request must not count for another request."""
    made = manager_of(vllm, 3)
    first, second, third = (context_of(vllm, i, name=str(i)) for i in (1, 2, 3))
    for i, context in ((1, first), (2, second), (3, third)):
        store(made, context, i)
    made.on_request_finished(second)
    made.on_request_finished(first)
    assert store(made, context_of(vllm, 4, 5, 6, name="t"), 4, 5, 6).evicted_keys == keys_of(3, 2, 1)


def test_events(vllm):
    made, context = manager_of(vllm, 2), context_of(vllm, 1, 2, 3)
    assert list(made.take_events()) == []
    store(made, context, 1, 2)
    store(made, context, 3)
    made.complete_store(keys_of(3), context)  # no effect: chunk 3 is already complete
    stored = [(keys_of(1, 2), "CPU", False, False), (keys_of(2 if vllm.v033 else 1), "CPU", True, False),
              (keys_of(3), "CPU", False, False)]
    assert events_of(made) == stored and events_of(made) == []
    made.reset_cache()
    assert events_of(made) == []
    silent = manager_of(vllm, 2, events=False)
    store(silent, context, 1, 2)
    store(silent, context, 3, success=False)
    assert list(silent.take_events()) == []


def test_events_of_failed_stores(vllm):
    """In 0.33, an event reports the chunks that a failed store released. It omits chunks that are stored again."""
    made, context = manager_of(vllm), context_of(vllm, 1, 2, 3, 4)
    store(made, context, 1)
    made.prepare_store(keys_of(2, 3, 4), context)
    made.complete_store(iter(keys_of(1, 2, 3, 4, 2)), context, success=False)
    assert made.lookup(key(2), context) is vllm.base.LookupResult.MISS
    assert made.lookup(key(1), context) is vllm.base.LookupResult.HIT
    made.complete_store(keys_of(2), context, success=False)  # no effect: chunk 2 is absent
    made.prepare_store(keys_of(3), context)
    failed = [(keys_of(2, 4), "CPU", True, True)] if vllm.v033 else []
    assert events_of(made) == [(keys_of(1), "CPU", False, False), *failed]
    made.complete_store(keys_of(3), context, success=False)
    store(made, context, 2)
    made.prepare_store(keys_of(3), context)
    assert events_of(made) == [(keys_of(2), "CPU", False, False)]  # the event of chunk 3 has no key left


def test_events_keep_their_order(vllm):
    made, context = manager_of(vllm, 1), context_of(vllm, 1, 2, 3)
    store(made, context, 1)
    store(made, context, 2, success=False)
    store(made, context, 3)
    failed = [(keys_of(2), "CPU", True, True)] if vllm.v033 else []
    assert events_of(made) == [(keys_of(1), "CPU", False, False), (keys_of(1), "CPU", True, False), *failed,
                               (keys_of(3), "CPU", False, False)]


def test_a_reset(vllm):
    made, context = manager_of(vllm, 2), context_of(vllm, 1, 2, 3)
    store(made, context, 1)
    made.prepare_store(keys_of(2), context)
    made.prepare_load(keys_of(1), context)
    made.reset_cache()
    assert [made.lookup(key(i), context) for i in (1, 2)] == [vllm.base.LookupResult.MISS] * 2
    assert made.get_stats().data["gauge"] == {"usage": 0, "write_usage": 0, "read_usage": 0}
    assert store(made, context, 3, 2).store_spec.block_ids.tolist() == [0, 1]
    made.on_request_finished(context)


def test_stats(vllm):
    made, context = manager_of(vllm, 4), context_of(vllm, 1, 2, 3, 4, 5)
    stats = made.get_stats()
    assert type(stats).__name__ == "OffloadingConnectorStats"
    assert stats.data == {"gauge": {"usage": 0, "write_usage": 0, "read_usage": 0}, "counter": {}, "histogram": {}}
    store(made, context, 1)
    made.prepare_load(keys_of(1), context)
    made.prepare_store(keys_of(1, 2, 3), context)
    assert made.prepare_store(keys_of(4, 5), context) is None
    assert made.get_stats().data == {"gauge": {"usage": 0.75, "write_usage": 0.5, "read_usage": 0.25}, "counter": {},
                                     "histogram": {"allocation_size": [1, 2, 2]}}
    assert made.get_stats().data["histogram"] == {}


def test_the_threshold_counts_offers(vllm):
    made, context = manager_of(vllm, threshold=2), context_of(vllm, 1, 2)
    assert made.store_threshold == 2
    assert store(made, context, 1, 2).keys_to_store == []
    made.lookup(key(2), context)
    assert store(made, context, 1).keys_to_store == keys_of(1)
    assert made.get_stats().data["counter"] == {"stores_skipped": 2}
    assert made.get_stats().data["counter"] == {"stores_skipped": 0}
    assert "stores_skipped" not in manager_of(vllm, threshold=1).get_stats().data["counter"]


def test_the_labels_of_the_info_metric(vllm):
    info = vllm.common.CPUOffloadingInfo(7)
    assert manager_of(vllm).config_info() == [{}]
    assert manager_of(vllm, info=info).config_info() == [{"cpu_num_chunks": 7}]


@pytest.mark.parametrize("policy", ["lru", "arc"])
@pytest.mark.parametrize("threshold", [0, 2])
def test_random_calls_give_the_results_of_the_stand_in(vllm, policy, threshold):
    """Compares kvcast's manager, and kvcast's cache policy in the manager of the stand-in, with the stand-in."""
    seams = importlib.import_module("kvcast._vllm_offload_seams")
    own_policy = {"lru": "KvcastCachePolicy", "arc": "KvcastArcCachePolicy"}[policy]

    def theirs(name):
        return vllm.manager.CPUOffloadingManager(24, name, "kvcast.vllm", True, threshold, 64)

    for seed in range(4):
        assert seams.first_difference(policy, threshold, vllm.rules, seed, 1500) is None
        pair = theirs(policy), theirs(own_policy)
        assert type(pair[1].policy) is getattr(plugin, own_policy)
        assert seams.first_difference(policy, threshold, vllm.rules, seed, 1500, pair) is None


# The cache policies.


@pytest.mark.parametrize("policy", ["KvcastCachePolicy", "KvcastArcCachePolicy"])
def test_a_cache_policy(vllm, policy):
    kind = getattr(plugin, policy)
    made, chunk = kind(3), vllm.policies_base.ChunkStatus
    assert isinstance(made, vllm.policies_base.CachePolicy) and made.cache_capacity == 3 and made.get(key(1)) is None
    more = [context_of(vllm, 1, 2, 3)] if vllm.v033 else []
    chunks = {i: chunk(i) for i in (1, 2, 3)}
    for i in chunks:
        made.insert(key(i), chunks[i], *more)
    assert made.get(key(2)) is chunks[2] and made.evict(1, set()) is None and made.evict(0, set()) == []
    for i in chunks:
        chunks[i].ref_cnt = 0
        made.mark_evictable(key(i))
    made.mark_non_evictable(key(3))
    assert made.evict(3, set()) is None and made.evict(2, {key(1)}) is None
    (victim,) = made.evict(1, {key(1)})
    assert victim == (key(2), chunks[2]) and victim[1] is chunks[2] and made.get(key(2)) is None
    made.mark_evictable(key(3))
    made.remove(key(3))
    with pytest.raises(kvcast.InvalidArgumentError):
        made.remove(key(3))
    assert made.get(key(3)) is None and made.evict(2, set()) is None
    made.clear()
    assert made.get(key(1)) is None and made.evict(1, set()) is None
    made.insert(key(1), chunk(1, 0), *more)  # a chunk without a transfer may leave at once
    assert [one for one, _ in made.evict(1, set())] == keys_of(1)


@pytest.mark.parametrize("policy", ["lru", "arc"])
def test_touched_chunks(vllm, policy):
    """Compares `touch` of kvcast's policies and of the stand-in's, for chunks in every state and for evicted keys."""
    own = {"lru": plugin.KvcastCachePolicy, "arc": plugin.KvcastArcCachePolicy}[policy](6)
    theirs = {"lru": vllm.policies.LRUCachePolicy, "arc": vllm.policies.ARCCachePolicy}[policy](6)
    pair, context = (own, theirs), context_of(vllm, *range(12))
    choose, evictions = np.random.default_rng(3), 0
    for _ in range(1500):
        i, draw = int(choose.integers(12)), choose.random()
        states = [made.get(key(i)) for made in pair]
        assert (states[0] is None) == (states[1] is None)
        several = keys_of(*map(int, choose.choice(12, 3, replace=False)))
        for made, state in zip(pair, states):
            if state is None:
                made.insert(key(i), vllm.policies_base.ChunkStatus(i), *([context] if vllm.v033 else []))
            elif state.ref_cnt != 0 and draw < 0.5:
                state.ref_cnt = 0
                made.mark_evictable(key(i))
            elif state.ref_cnt == 0 and draw < 0.3:
                made.mark_non_evictable(key(i))
                state.ref_cnt = 1
            if draw > 0.4:
                made.touch(iter(several), context)
        if draw > 0.6:
            victims = [made.evict(2, set(several)) for made in pair]
            assert (victims[0] and [one for one, _ in victims[0]]) == (victims[1] and [one for one, _ in victims[1]])
            evictions += bool(victims[0])
    assert evictions > 100


def test_a_policy_of_another_interface_raises(vllm, monkeypatch):
    monkeypatch.setattr(vllm.policies_base.CachePolicy, "pin", lambda self: None, raising=False)
    with pytest.raises(RuntimeError, match=f"{vllm.release}: unknown interface of cache policies; tested: 0.32.0"):
        plugin.KvcastCachePolicy(4)


def test_a_rank_belongs_to_one_policy_and_ends_with_a_clear(vllm):
    if not vllm.v033:
        pytest.skip("0.32 has no ranks of requests")
    first, second = plugin.KvcastCachePolicy(4), plugin.KvcastCachePolicy(4)
    old, new = context_of(vllm, 1, 2, 3), context_of(vllm, 1, 2, 3, name="s")
    second.on_request_access(keys_of(1), old)
    for made in (first, second):
        for _ in range(2):  # after a clear, each context gets a new rank
            made.insert(key(1), vllm.policies_base.ChunkStatus(1, 0), new)
            made.insert(key(2), vllm.policies_base.ChunkStatus(2, 0), old)
            assert [one for one, _ in made.evict(2, set())] == keys_of(1, 2)
            made.clear()
    first.insert(key(3), vllm.policies_base.ChunkStatus(3, 0), vllm.base.ReqContext("without positions"))
    first.on_request_access(keys_of(3, 9), old)
    assert first.evict(1, set())[0][0] == key(3)


# The spec.


def test_the_spec_makes_the_manager_and_logs_one_line(vllm, caplog):
    spec = spec_of(groups=(0, 3), eviction_policy="arc", store_threshold="2", max_tracker_size=50)
    with caplog.at_level(logging.INFO, "vllm.kvcast"):
        made = spec.get_manager()
    assert type(made) is plugin.KvcastOffloadingManager and spec.get_manager() is made
    assert caplog.messages == [f"kvcast: vLLM {vllm.release} offloads with kvcast's manager: 24 chunks, policy arc, "
                               f"rules {vllm.rules}"]
    assert made.store_threshold == 2 and made._own.num_slots == 24
    assert made.config_info() == [{"cpu_num_chunks": 24} if vllm.v033 else {}]
    context = vllm.base.ReqContext("r")
    made.prepare_store([key(1, 3)], context)
    assert made.prepare_store([key(1, 3)], context).keys_to_store == [key(1, 3)]
    with pytest.raises(kvcast.InvalidArgumentError):
        made.prepare_store([key(1, 4)], context)


def test_the_spec_passes_the_option_for_events(vllm):
    for events in (True, False):
        made, context = spec_of(events=events).get_manager(), context_of(vllm, 1)
        store(made, context, 1)
        assert bool(events_of(made)) is events


def test_an_untested_release_works_and_is_logged_as_untested(vllm, caplog):
    sys.modules["vllm"].__version__ = vllm.release.rsplit(".", 1)[0] + ".7+cpu"
    with caplog.at_level(logging.INFO, "vllm.kvcast"):
        assert type(spec_of().get_manager()) is plugin.KvcastOffloadingManager
    assert len(caplog.messages) == 1 and ".7, which is not tested (tested: 0.32.0, 0.33.0) offloads with" in caplog.text


def add_method(vllm, monkeypatch):
    monkeypatch.setattr(vllm.base.OffloadingManager, "pin_keys", lambda self: None, raising=False)


def add_event_field(vllm, monkeypatch):
    made = dataclasses.make_dataclass("OffloadingEvent", [("copies", int, 1)], bases=(vllm.base.OffloadingEvent,))
    monkeypatch.setattr(vllm.base, "OffloadingEvent", made)


def add_policy_method(vllm, monkeypatch):
    monkeypatch.setattr(vllm.policies_base.CachePolicy, "pin", lambda self: None, raising=False)


def drop_policy_method(vllm, monkeypatch):
    monkeypatch.delattr(vllm.policies_base.CachePolicy, "on_request_finished")


def change_policy_arguments(vllm, monkeypatch):
    monkeypatch.setattr(vllm.policies_base.CachePolicy, "insert", lambda self, key, chunk, req_context, rank: None)


def change_lookup(vllm, monkeypatch):
    results = vllm.base.LookupResult
    monkeypatch.setattr(vllm.manager.CPUOffloadingManager, "lookup",
                        lambda self, key, context: results.MISS if self.policy.get(key) is None else results.HIT)


def change_eviction(vllm, monkeypatch):
    def evict(self, n, protected, own=vllm.policies.LRUCachePolicy.evict):
        return own(self, n + (n > 2), protected)

    monkeypatch.setattr(vllm.policies.LRUCachePolicy, "evict", evict)


def change_arc(vllm, monkeypatch):
    monkeypatch.setattr(vllm.policies.ARCCachePolicy, "on_store_miss", lambda self, keys, context: None)


def change_ghosts(vllm, monkeypatch):
    def evict(self, n, protected, own=vllm.policies.ARCCachePolicy.evict):
        capacity, self.cache_capacity = self.cache_capacity, 10**6  # no ghost is forgotten
        try:
            return own(self, n, protected)
        finally:
            self.cache_capacity = capacity

    monkeypatch.setattr(vllm.policies.ARCCachePolicy, "evict", evict)


def change_failed_stores(vllm, monkeypatch):
    if not vllm.v033:
        pytest.skip("0.32 has no events of failed stores")

    def take_events(self, own=vllm.manager.CPUOffloadingManager.take_events):
        return [dataclasses.replace(event, metadata_only=False) for event in own(self)]

    monkeypatch.setattr(vllm.manager.CPUOffloadingManager, "take_events", take_events)


def change_finish(vllm, monkeypatch):
    monkeypatch.setattr(vllm.policies.LRUCachePolicy, "on_request_finished", lambda self, *more: None)


def change_counts(vllm, monkeypatch):
    def count(self, keys, own=vllm.manager.CPUOffloadingManager._count):
        own(self, keys[:1])

    monkeypatch.setattr(vllm.manager.CPUOffloadingManager, "_count", count)


def change_stats(vllm, monkeypatch):
    def get_stats(self, own=vllm.manager.CPUOffloadingManager.get_stats):
        self.skipped *= 2
        return own(self)

    monkeypatch.setattr(vllm.manager.CPUOffloadingManager, "get_stats", get_stats)


def change_events(vllm, monkeypatch):
    def take_events(self, own=vllm.manager.CPUOffloadingManager.take_events):
        return [event for event in own(self) if not event.removed]

    monkeypatch.setattr(vllm.manager.CPUOffloadingManager, "take_events", take_events)


def change_constructor(vllm, monkeypatch):
    def init(self, num_chunks, policy, *, own=vllm.manager.CPUOffloadingManager.__init__):
        own(self, num_chunks, "lru")

    monkeypatch.setattr(vllm.manager.CPUOffloadingManager, "__init__", init)
    monkeypatch.setattr(vllm.spec.CPUOffloadingSpec, "get_manager",
                        lambda self: vllm.manager.CPUOffloadingManager(self.num_chunks, "lru"))


def raise_in_a_call(vllm, monkeypatch):
    monkeypatch.setattr(vllm.manager.CPUOffloadingManager, "lookup", lambda self, key, context: context.depth)


def drop_event_class(vllm, monkeypatch):
    monkeypatch.setattr(vllm.base, "OffloadingEvent", tuple)


CHANGES = {
    add_method: "OffloadingManager has unknown methods: pin_keys", add_event_field: "OffloadingEvent has unknown fields: copies",
    add_policy_method: "unknown interface of cache policies", drop_policy_method: "unknown interface of cache policies",
    change_policy_arguments: "unknown interface of cache policies", change_lookup: "lru, call",
    change_eviction: "lru, call", change_arc: "arc, call", change_finish: "lru, call",
    change_ghosts: "arc, call", change_failed_stores: " (take_events): vLLM",
    change_counts: " (prepare_store): vLLM", change_stats: " (get_stats): vLLM",
    change_events: " (take_events): vLLM", change_constructor: "TypeError: ", raise_in_a_call: "AttributeError: ",
    drop_event_class: "TypeError: ",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_release_that_differs_uses_its_own_manager(vllm, monkeypatch, caplog, change):
    importlib.import_module("kvcast._vllm_offload")
    change(vllm, monkeypatch)
    spec = spec_of()
    made = spec.get_manager()
    assert type(made) is vllm.manager.CPUOffloadingManager and spec.get_manager() is made and made.num_chunks == 24
    (record,) = [record for record in caplog.records if record.name == "vllm.kvcast"]
    line = record.getMessage()
    assert record.levelno == logging.WARNING and "\n" not in line and CHANGES[change] in line
    assert line.startswith(f"kvcast: vLLM {vllm.release} does not fit KvcastOffloadingSpec: ")
    assert line.endswith("; vLLM's own manager is in use")


def test_an_unknown_eviction_policy_uses_the_manager_of_vllm(vllm, caplog):
    spec = spec_of(eviction_policy="KvcastCachePolicy", cache_policy_module_path="kvcast.vllm")
    made = spec.get_manager()
    assert type(made) is vllm.manager.CPUOffloadingManager and type(made.policy) is plugin.KvcastCachePolicy
    assert len(caplog.messages) == 1 and "kvcast has no eviction policy 'KvcastCachePolicy'; vLLM's own" in caplog.text


@pytest.mark.parametrize("extra, text", [
    ({"kvcast_copies": "gpu"}, "'gpu', must be vllm, host or cuda"), ({"kvcast_copies": None}, "None, must be"),
    ({"kvcast_copies": "host", "canonical_layout": True}, "canonical_layout"),
    ({"kvcast_copies": "cuda", "canonical_layout": True}, "canonical_layout")])
def test_bad_options_raise(vllm, extra, text):
    with pytest.raises(ValueError, match="kvcast_copies: .*" + text):
        spec_of(**extra)


def test_the_worker_of_vllm_is_the_default(vllm):
    for extra in ({}, {"kvcast_copies": "vllm", "canonical_layout": True}):
        spec, caches = spec_of(**extra), caches_of(vllm, [np.zeros((4, 64), np.int8)])
        assert type(spec.get_worker(caches)) is vllm.spec.CPUOffloadingWorker and spec.replicated_layout is True
    assert spec_of(kvcast_copies="host").replicated_layout is False  # there is no shared memory


# The worker.


class Tensor:
    """The members of torch.Tensor that the worker uses."""

    def __init__(self, array, kind="cpu", index=None):
        self.array, self.device = array, SimpleNamespace(type=kind, index=index)

    def numpy(self):
        assert self.device.type == "cpu"
        return self.array


def caches_of(vllm, arrays, refs=None, **more):
    tensors = [array if isinstance(array, Tensor) else Tensor(array, **more) for array in arrays]
    caches = [vllm.base.CanonicalKVCacheTensor(tensor, tensor.array.shape[1]) for tensor in tensors]
    refs = refs or [[(i, tensor.array.shape[1]) for i, tensor in enumerate(tensors)]]
    ref_of = vllm.base.CanonicalKVCacheRef
    return vllm.base.CanonicalKVCaches(caches, [[ref_of(*ref) for ref in group] for group in refs])


def bytes_of(rows, width, seed):
    return np.random.default_rng(seed).integers(-128, 128, (rows, width)).astype(np.int8)


def gpu_blocks(vllm, blocks, sizes, indices):
    return vllm.base.GPULoadStoreSpec(blocks, sizes, indices)


def cpu_chunks(vllm, *chunks):
    return vllm.common.CPULoadStoreSpec(chunks)


def test_a_pipeline_stage_may_have_no_layer_of_a_group(vllm):
    array = bytes_of(12, 40, 1)
    before = array.copy()
    spec = spec_of(kvcast_copies="host", block_bytes=64, blocks_per_chunk=2)
    worker = spec.get_worker(caches_of(vllm, [array], [[], [(0, 40)]]))
    assert worker.submit_store(1, gpu_blocks(vllm, [1, 2, 3, 4], [2, 2], [1, 0]), cpu_chunks(vllm, 5, 6, 7)) is True
    worker.wait({1})
    array[:] = 0
    assert worker.submit_load(2, cpu_chunks(vllm, 7), gpu_blocks(vllm, [8, 9], [0, 2], [0, 0])) is True
    worker.wait({2})
    assert [result.success for result in worker.get_finished()] == [True, True]
    assert (array[8:10] == before[3:5]).all()


def test_the_worker_copies_the_bytes_of_all_groups(vllm):
    """Two groups share a tensor. A chunk has two blocks, and some jobs copy only one block of a chunk."""
    arrays = [bytes_of(12, 40, 1), bytes_of(12, 24, 2)]
    before = [array.copy() for array in arrays]
    spec = spec_of(kvcast_copies="host", block_bytes=64, blocks_per_chunk=2)
    worker = spec.get_worker(caches_of(vllm, arrays, [[(0, 40), (1, 20)], [(1, 24)]]))
    assert isinstance(worker, vllm.base.OffloadingWorker) and spec.get_worker(None) is worker
    blocks = gpu_blocks(vllm, [1, 2, 3, 4, 5], [3, 2], [1, 0])  # group 0: blocks 1 to 3; group 1: blocks 0 and 1
    assert worker.submit_store(7, blocks, cpu_chunks(vllm, 23, 0, 9)) is True
    worker.wait({7, 8})
    (result,) = worker.get_finished()
    assert (result.job_id, result.success, result.transfer_size) == (7, True, 3 * 60 + 2 * 24)
    assert 0 < result.transfer_time < 60 and worker.get_finished() == []
    for array in arrays:
        array[:] = 0
    expedited = {"expedited": True} if vllm.v033 else {}
    assert worker.submit_load(8, cpu_chunks(vllm, 23, 9), gpu_blocks(vllm, [6, 8], [1, 1], [1, 1]), **expedited) is True
    assert worker.submit_load(9, cpu_chunks(vllm, 0), gpu_blocks(vllm, [7], [1, 0], [2, 0])) is True
    worker.wait({8, 9})
    assert sorted(result.job_id for result in worker.get_finished()) == [8, 9]
    expected = [np.zeros_like(array) for array in arrays]
    expected[0][6], expected[0][7] = before[0][1], before[0][2]
    expected[1][6, :20], expected[1][7, :20], expected[1][8] = before[1][1, :20], before[1][2, :20], before[1][5]
    assert all((array == one).all() for array, one in zip(arrays, expected))
    assert worker._running == {}
    worker.shutdown()
    worker.shutdown()
    with pytest.raises(kvcast.ClosedError):
        worker.get_finished()


def test_the_memory_of_the_worker_is_that_of_the_spec(vllm):
    worker = spec_of(kvcast_copies="host", block_bytes=32, blocks_per_chunk=3).get_worker(
        caches_of(vllm, [bytes_of(9, 32, 1)]))
    worker.submit_store(1, gpu_blocks(vllm, [1, 2, 3, 4], [4], [2]), cpu_chunks(vllm, 23, 22))
    worker.wait({1})
    assert worker.get_finished()[0].success
    worker.submit_store(2, gpu_blocks(vllm, [1], [1], [0]), cpu_chunks(vllm, 24))
    worker.wait({2})
    with pytest.raises(RuntimeError, match="the copies of offloading job 2 failed: .*slot is not in host memory"):
        worker.get_finished()
    worker.shutdown()


def test_a_failed_job_raises(vllm):
    worker = spec_of(kvcast_copies="host").get_worker(caches_of(vllm, [bytes_of(4, 64, 1)]))
    worker.submit_load(5, cpu_chunks(vllm, 1), gpu_blocks(vllm, [4], [1], [0]))
    worker.wait({5})
    with pytest.raises(RuntimeError, match="the copies of offloading job 5 failed: .*block 4: is not in the pool"):
        worker.get_finished()
    with pytest.raises(kvcast.InvalidArgumentError):
        worker.submit_store(6, gpu_blocks(vllm, [1, 2], [2], [0]), cpu_chunks(vllm, 1))


@pytest.mark.parametrize("copies, kinds", [
    ("host", ["cuda"]), ("cuda", ["cpu"]), ("host", ["cpu", "cuda"]), ("cuda", ["cuda", "cpu"]), ("cuda", ["xpu"]),
    ("host", ["xpu"]), ("host", [])])
def test_a_cache_on_another_device_raises(vllm, copies, kinds):
    caches = caches_of(vllm, [Tensor(bytes_of(4, 64, 1), kind, 0) for kind in kinds])
    devices = ", ".join(sorted(kinds))
    with pytest.raises(ValueError, match=f"kvcast_copies: {copies} cannot copy a KV cache on {devices}$"):
        spec_of(kvcast_copies=copies).get_worker(caches)


def test_on_a_gpu_the_copies_wait_for_the_compute_stream(vllm, monkeypatch):
    """BlockCopier and torch are stand-ins. The job waits for the event of the stream. The worker keeps the event
    until the job has ended."""
    jobs, events = [], []

    class Event:
        def record(self, stream):
            self.cuda_event = 1000 + len(events)
            events.append(stream)

    class Copier:
        block_bytes = [64]

        def __init__(self, *arguments, **more):
            self.made = arguments, more

        def submit(self, *arguments, after):
            jobs.append((arguments[:2], after))

        def poll(self):
            return [(jobs[-1][0][0], None)]

        def wait(self, ids):
            self.waited = ids

        def close(self):
            pass

    monkeypatch.setattr(kvcast, "BlockCopier", Copier)
    torch = SimpleNamespace(cuda=SimpleNamespace(Event=Event, current_stream=lambda device: ("stream", device.index)))
    monkeypatch.setitem(sys.modules, "torch", torch)
    tensor = Tensor(bytes_of(4, 64, 1), "cuda", 3)
    worker = spec_of(kvcast_copies="cuda", blocks_per_chunk=2).get_worker(caches_of(vllm, [tensor]))
    assert worker._copier.made == (([[(tensor, 64)]], 24, 128), {"blocks_per_chunk": 2, "backend": "cuda", "device": 3})
    worker.submit_store(1, gpu_blocks(vllm, [1], [1], [0]), cpu_chunks(vllm, 0))
    worker.submit_load(2, cpu_chunks(vllm, 0), gpu_blocks(vllm, [1], [1], [0]))
    assert jobs == [((1, True), 1000), ((2, False), 1001)] and events == [("stream", 3)] * 2
    assert isinstance(worker._running[2][2], Event)
    assert [result.job_id for result in worker.get_finished()] == [2] and list(worker._running) == [1]
    worker.wait({1, 2, 3})
    assert worker._copier.waited == [1]
    worker.shutdown()
    assert worker._running == {}


def test_the_names_of_the_plug_in(vllm):
    assert plugin.KvcastOffloadingSpec.__mro__[1] is vllm.spec.CPUOffloadingSpec
    with pytest.raises(AttributeError, match="no attribute 'KvcastOffloader'"):
        plugin.KvcastOffloader
