"""The manager and the spec of kvcast.vllm for vLLM's offloading connector. The import needs vLLM."""
import logging
from collections.abc import Collection
from dataclasses import dataclass, fields

import kvcast
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats
from vllm.v1.kv_offload.base import (
    LookupResult,
    Medium,
    OffloadingEvent,
    OffloadingManager,
    PrepareStoreOutput,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec, CPUOffloadingMetrics
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from . import _vllm_offload_seams
from ._vllm_offload_seams import SeamError

_logger = logging.getLogger("vllm.kvcast")
_RESULTS = {"miss": LookupResult.MISS, "hit": LookupResult.HIT, "pending": LookupResult.HIT_PENDING}
# Since vLLM 0.33, an event for vLLM's event tracker reports the chunks that a failed store has released.
_REPORTS_FAILED_STORES = "metadata_only" in {field.name for field in fields(OffloadingEvent)}


@dataclass(slots=True)
class _Request:
    """The number of a request in one manager. A request context holds it."""
    owner: object
    number: int


class KvcastOffloadingManager(OffloadingManager):
    """vLLM's interface of a manager over kvcast.OffloadManager. Each chunk has one slot.

    num_chunks: slots of the host memory. num_groups: the group of each key is below this number.
    policy: "lru" or "arc". rules: the release of vLLM whose rules kvcast follows, as in
    OffloadManager. info: the labels of vLLM 0.33's info metric.

    Like vLLM's managers, one thread may use a manager at a time."""

    def __init__(self, num_chunks: int, num_groups: int, policy: str, enable_events: bool, store_threshold: int,
                 max_tracker_size: int, rules: str, info=None):
        self.medium = Medium.CPU
        self.store_threshold = store_threshold
        self._info = {} if info is None else info.as_config_info()
        self._requests = 0
        self._events: list[OffloadingEvent] = []
        self._enable_events = enable_events
        self._own = kvcast.OffloadManager(
            num_chunks, [1] * num_groups, policy=policy, page_bytes=1, store_threshold=store_threshold,
            max_tracker_size=max_tracker_size, enable_events=enable_events, rules=rules, compatible=True)

    def _number_and_ends(self, keys: Collection[bytes], req_context) -> tuple[int, list[int]]:
        """Return the number of the request, and for each key the tokens of the prefix that ends with its chunk."""
        position = req_context.get_offload_key_position
        return self._number(req_context), [position(key) or 0 for key in keys]

    def _number(self, req_context) -> int:
        state = req_context.get_state(_Request)
        if state is None or state.owner is not self:
            self._requests += 1
            state = _Request(self, self._requests)
            req_context.set_state(state)
        return state.number

    def on_new_request(self, req_context) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def lookup(self, key: bytes, req_context) -> LookupResult:
        return _RESULTS[self._own.lookup(key, self._number(req_context))]

    def get_load_source(self, key: bytes, req_context) -> CacheHitSource:
        return CacheHitSource.HOST

    def prepare_load(self, keys: Collection[bytes], req_context) -> CPULoadStoreSpec:
        keys = list(keys)
        return CPULoadStoreSpec(self._own.prepare_load(keys, *self._number_and_ends(keys, req_context)))

    def complete_load(self, keys: Collection[bytes], req_context) -> None:
        self._own.complete_load(keys)

    def touch(self, keys: Collection[bytes], req_context) -> None:
        self._own.touch(keys)

    def prepare_store(self, keys: Collection[bytes], req_context) -> PrepareStoreOutput | None:
        keys = list(keys)
        try:
            plan = self._own.prepare_store(keys, *self._number_and_ends(keys, req_context))
        except kvcast.ExhaustedError:
            return None
        return PrepareStoreOutput(plan["keys"], CPULoadStoreSpec(plan["slots"]), plan["evicted"])

    def complete_store(self, keys: Collection[bytes], req_context, success: bool = True) -> None:
        keys = list(keys)
        if success or not (self._enable_events and _REPORTS_FAILED_STORES):
            self._own.complete_store(keys, success)
            return
        failed = [key for key in dict.fromkeys(keys) if self._own.lookup(key) == "pending"]
        self._own.complete_store(keys, False)
        if failed:
            self._drain()
            self._events.append(OffloadingEvent(failed, self.medium, removed=True, metadata_only=True))

    def on_request_finished(self, req_context) -> None:
        state = req_context.get_state(_Request)
        if state is not None and state.owner is self:
            self._own.finish_request(state.number)

    def reset_cache(self) -> None:
        self._own.reset()

    def _drain(self) -> None:
        for kind, keys in self._own.take_events():
            self._events.append(OffloadingEvent(keys, self.medium, removed=kind == "removed"))

    def take_events(self) -> list[OffloadingEvent]:
        self._drain()
        events, self._events = self._events, []
        return [event for event in map(self._current, events) if event.keys]

    def _current(self, event: OffloadingEvent) -> OffloadingEvent:
        """Return the event without the keys of a failed store that are stored again."""
        if getattr(event, "metadata_only", False):
            event.keys = [key for key in event.keys if self._own.lookup(key) == "miss"]
        return event

    def config_info(self):
        return [self._info]

    def get_stats(self) -> OffloadingConnectorStats:
        own, stats, names = self._own.take_stats(), OffloadingConnectorStats(), CPUOffloadingMetrics
        stats.set_gauge(names.CPU_CACHE_USAGE_PERC, own["usage"])
        for size in own["allocation_sizes"]:
            stats.observe_histogram(names.CPU_ALLOCATION_SIZE, size)
        stats.set_gauge(names.CPU_CACHE_WRITE_USAGE_PERC, own["write_usage"])
        stats.set_gauge(names.CPU_CACHE_READ_USAGE_PERC, own["read_usage"])
        if self.store_threshold >= 2:
            stats.increase_counter(names.STORES_SKIPPED, own["stores_skipped"])
        return stats


class KvcastOffloadingSpec(CPUOffloadingSpec):
    """vLLM's spec for host memory, with kvcast's manager. See docs/vllm-plugin.md.

    It takes the options of vLLM's CPUOffloadingSpec (kv_connector_extra_config), with the eviction
    policies "lru" and "arc". If this vLLM does not behave as kvcast's manager does, the spec logs one
    warning and uses vLLM's own manager.

    The option "kvcast_copies" chooses the worker. "vllm" (default): vLLM's own worker. "cuda": kvcast's
    copies, for a KV cache on a GPU. "host": kvcast's copies, for a KV cache in host memory."""

    def __init__(self, config):
        self._copies = config.extra_config.get("kvcast_copies", "vllm")
        if self._copies not in ("vllm", "host", "cuda"):
            raise ValueError(f"kvcast_copies: is {self._copies!r}, must be vllm, host or cuda")
        if self._copies != "vllm" and config.extra_config.get("canonical_layout"):
            raise ValueError("kvcast_copies: canonical_layout needs the copies of vLLM")
        super().__init__(config)

    def _uses_shared_region(self) -> bool:
        return self._copies == "vllm" and super()._uses_shared_region()

    def get_worker(self, kv_caches):
        if self._copies == "vllm":
            return super().get_worker(kv_caches)
        if self._worker is None:
            from ._vllm_offload_worker import KvcastOffloadingWorker

            self._worker = KvcastOffloadingWorker(kv_caches, max(1, self.num_chunks), self.cpu_page_size_per_worker,
                                                  self.blocks_per_chunk, self._copies)
        return self._worker

    def get_manager(self) -> OffloadingManager:
        if self._manager is None:
            self._manager = self._own_manager() or super().get_manager()
        return self._manager

    def _own_manager(self) -> KvcastOffloadingManager | None:
        version = _vllm_offload_seams.version()
        try:
            if self.eviction_policy not in ("lru", "arc"):
                raise SeamError(f"kvcast has no eviction policy {self.eviction_policy!r}")
            rules = _vllm_offload_seams.check()
        except SeamError as error:
            _logger.warning("kvcast: vLLM %s does not fit KvcastOffloadingSpec: %s; vLLM's own manager is in use",
                            version, error)
            return None
        _logger.info("kvcast: %s offloads with kvcast's manager: %d chunks, policy %s, rules %s",
                     _vllm_offload_seams.note(), self.num_chunks, self.eviction_policy, rules)
        more = {"info": self.cpu_info} if hasattr(self, "cpu_info") else {}
        return KvcastOffloadingManager(
            self.num_chunks, 1 + max(group.group_id for group in self.config.groups), self.eviction_policy,
            self.kv_events_config.enable_kv_cache_events, max(0, int(self.extra_config.get("store_threshold", 0))),
            max(1, int(self.extra_config.get("max_tracker_size", 64_000))), rules, **more)
