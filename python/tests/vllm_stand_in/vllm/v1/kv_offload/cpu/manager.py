"""Part of the stand-in for vLLM: the manager of host memory, as simple as possible."""
import importlib
from dataclasses import dataclass, field

from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import (
    V033,
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadingManager,
    PrepareStoreOutput,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec, CPUOffloadingMetrics
from vllm.v1.kv_offload.cpu.policies.base import ChunkStatus
from vllm.v1.kv_offload.cpu.policies.standard import ARCCachePolicy, LRUCachePolicy


@dataclass
class _Uses:
    """The keys that one request used."""
    manager: object
    generation: int  # number of resets of the manager
    groups: dict = field(default_factory=dict)
    stored: set = field(default_factory=set)
    reused: set = field(default_factory=set)
    missed: set = field(default_factory=set)
    finished: bool = False


class CPUOffloadingManager(OffloadingManager):
    def __init__(self, num_chunks, cache_policy="lru", cache_policy_module_path=None, enable_events=False,
                 store_threshold=1, max_tracker_size=64_000, info=None):
        own = {"lru": LRUCachePolicy, "arc": ARCCachePolicy}
        kind = own.get(cache_policy) or getattr(importlib.import_module(cache_policy_module_path), cache_policy)
        self.policy = kind(cache_capacity=num_chunks)
        self.num_chunks, self.threshold, self.tracked, self.info = num_chunks, store_threshold, max_tracker_size, info
        self.events = [] if enable_events else None
        self.counts, self.generation, self.skipped, self.sizes = {}, 0, 0, []
        self._empty()

    def _empty(self):
        self.unused, self.free = list(range(self.num_chunks))[::-1], []
        self.status = {}  # by key; get_stats computes the used shares of the cache from these values

    def _uses(self, context) -> _Uses:
        state = context.get_state(_Uses)
        if state is None or state.manager is not self or state.generation != self.generation:
            state = _Uses(self, self.generation)
            context.set_state(state)
        return state

    def _use(self, keys, context, reused):
        uses, new = self._uses(context), []
        for key in keys:
            group = uses.groups.setdefault(key[-4:], [])
            if key not in group:
                group.append(key)
                new.append(key)
        if new and V033:
            self.policy.on_request_access(new, context)
        uses.reused.update(key for key in reused if key not in uses.stored)

    def _event(self, keys, **more):
        if keys and self.events is not None:
            self.events.append(OffloadingEvent(list(keys), Medium.CPU, **more))

    def on_new_request(self, context):
        return RequestOffloadingContext()

    def lookup(self, key, context):
        chunk = self.policy.get(key)
        if chunk is None:
            return LookupResult.MISS
        return LookupResult.HIT if chunk.is_ready else LookupResult.HIT_PENDING

    def prepare_load(self, keys, context):
        chunks = [self.policy.get(key) for key in keys]
        for key, chunk in zip(keys, chunks):
            if chunk.ref_cnt == 0:
                self.policy.mark_non_evictable(key)
            chunk.ref_cnt += 1
        self._use(keys, context, keys)
        return CPULoadStoreSpec([chunk.chunk_id for chunk in chunks])

    def complete_load(self, keys, context):
        for key in keys:
            chunk = self.policy.get(key)
            chunk.ref_cnt -= 1
            if chunk.ref_cnt == 0:
                self.policy.mark_evictable(key)

    def touch(self, keys, context):
        self.policy.touch(keys, context)

    def _count(self, keys):
        known = [key for key in keys if key in self.counts]
        for key in known:
            self.counts[key] = self.counts.pop(key) + 1
        others = len(self.counts) - len(set(known))
        for key in keys:
            if key not in self.counts:
                if len(self.counts) >= self.tracked:
                    if others == 0:
                        continue
                    others -= 1
                    del self.counts[next(iter(self.counts))]
                self.counts[key] = 1

    def prepare_store(self, keys, context):
        keys = list(keys)
        absent = [key for key in keys if self.policy.get(key) is None]
        ready = [key for key in keys if key not in absent and self.policy.get(key).is_ready]
        if self.threshold >= 2:
            self._count(keys)
            wanted = [key for key in absent if self.counts.get(key, 0) >= self.threshold]
            self.skipped += len(absent) - len(wanted)
            absent = wanted
        uses = self._uses(context)
        if missed := [key for key in absent if key not in uses.missed]:
            self.policy.on_store_miss(missed, context)
            uses.missed.update(missed)
        self._use([key for key in keys if key in absent or key in ready], context, ready)
        if not absent:
            return PrepareStoreOutput([], CPULoadStoreSpec([]), [])
        self.sizes.append(len(absent))
        evicted = self.policy.evict(max(0, len(absent) - len(self.unused) - len(self.free)), set(keys))
        if evicted is None:
            return None
        for key, chunk in evicted:
            self.free.append(chunk.chunk_id)
            del self.status[key]
        self._event([key for key, _ in evicted], removed=True)
        slots = [self.unused.pop() if self.unused else self.free.pop() for _ in absent]
        for key, slot in zip(absent, slots):
            self.status[key] = ChunkStatus(slot)
            self.policy.insert(key, self.status[key], *([context] if V033 else []))
        uses.stored.update(absent)
        return PrepareStoreOutput(absent, CPULoadStoreSpec(slots), [key for key, _ in evicted])

    def complete_store(self, keys, context, success=True):
        ended = []
        for key in keys:
            chunk = self.policy.get(key)
            if chunk is None or chunk.is_ready:
                continue
            ended.append(key)
            if success:
                chunk.ref_cnt = 0
                self.policy.mark_evictable(key)
            else:
                self.policy.remove(key)
                del self.status[key]
                self.free.append(chunk.chunk_id)
        if success:
            self._event(ended, removed=False)
        elif V033:
            self._event(ended, removed=True, metadata_only=True)

    def on_request_finished(self, context):
        uses = self._uses(context)
        if uses.finished:
            return
        uses.finished = True
        ends = context.get_offload_key_position
        groups = [tuple(sorted(uses.groups[group], key=ends)) for group in sorted(uses.groups)]
        self.policy.on_request_finished(tuple(groups), uses.stored - uses.reused, uses.reused, context)

    def reset_cache(self):
        self.policy.clear()
        self.generation += 1
        self._empty()

    def take_events(self):
        events = self.events or []
        if self.events is not None:
            self.events = []
        for event in events:
            if getattr(event, "metadata_only", False):
                event.keys = [key for key in event.keys if self.policy.get(key) is None]
            if event.keys:
                yield event

    def config_info(self):
        return [{} if self.info is None else self.info.as_config_info()]

    def get_stats(self):
        stats, names = OffloadingConnectorStats(), CPUOffloadingMetrics
        busy = [chunk for chunk in self.status.values() if chunk.ref_cnt != 0]
        used = len(busy) / self.num_chunks
        written = sum(not chunk.is_ready for chunk in busy) / self.num_chunks
        stats.set_gauge(names.CPU_CACHE_USAGE_PERC, used)
        for size in self.sizes:
            stats.observe_histogram(names.CPU_ALLOCATION_SIZE, size)
        stats.set_gauge(names.CPU_CACHE_WRITE_USAGE_PERC, written)
        stats.set_gauge(names.CPU_CACHE_READ_USAGE_PERC, max(used - written, 0.0))
        if self.threshold >= 2:
            stats.increase_counter(names.STORES_SKIPPED, self.skipped)
        self.sizes, self.skipped = [], 0
        return stats
