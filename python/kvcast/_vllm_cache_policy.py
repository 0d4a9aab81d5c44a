"""The cache policies of kvcast.vllm for vLLM's own CPU offloading manager. The import needs vLLM."""
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import kvcast
from vllm.v1.kv_offload.cpu.policies.base import CachePolicy, ChunkStatus, order_request_keys

from . import _vllm_offload_seams


@dataclass(slots=True)
class _Rank:
    """The rank of a request in one policy, until the policy is cleared. A request context holds it."""
    owner: object
    generation: int
    rank: int


class KvcastCachePolicy(CachePolicy):
    """vLLM's interface of a cache policy over kvcast.EvictionOrder: least recently used.

    Raises RuntimeError if kvcast does not know the interface of this vLLM's cache policies."""

    policy = "lru"

    def __init__(self, cache_capacity: int):
        super().__init__(cache_capacity)
        self._rules = _vllm_offload_seams.rules_of_policy()
        self._chunks: dict[bytes, ChunkStatus] = {}
        self._generation = 0
        self._order = kvcast.EvictionOrder(cache_capacity, policy=self.policy, rules=self._rules)

    def _rank(self, req_context) -> int:
        state = req_context.get_state(_Rank)
        if state is None or state.owner is not self or state.generation != self._generation:
            state = _Rank(self, self._generation, self._order.new_rank())
            req_context.set_state(state)
        return state.rank

    def get(self, key: bytes) -> ChunkStatus | None:
        return self._chunks.get(key)

    def insert(self, key: bytes, chunk: ChunkStatus, req_context=None) -> None:
        position = None if req_context is None else req_context.get_offload_key_position(key)
        if position is None:
            self._order.insert(key)
        else:
            self._order.insert(key, self._rank(req_context), position)
        self._chunks[key] = chunk
        if chunk.ref_cnt == 0:
            self._order.set_idle(key, True)

    def remove(self, key: bytes) -> None:
        self._order.remove(key)
        del self._chunks[key]

    def touch(self, keys: Iterable[bytes], req_context) -> None:
        for key in reversed(list(keys)):
            chunk = self._chunks.get(key)
            if chunk is None:
                self._order.store_misses([key])
            elif chunk.is_ready:
                self._order.charge_reuse(key)
            else:
                self._order.charge_store(key)

    def on_store_miss(self, keys: Iterable[bytes], req_context) -> None:
        self._order.store_misses(reversed(list(keys)))

    def on_request_access(self, keys: Iterable[bytes], req_context) -> None:
        rank = self._rank(req_context)
        for key in keys:
            position = req_context.get_offload_key_position(key)
            if position is not None:
                self._order.access(key, rank, position)

    def on_request_finished(self, key_groups: Sequence[Sequence[bytes]], insertion_only_keys: set[bytes],
                            reused_keys: set[bytes], req_context) -> None:
        for key in reversed(order_request_keys(key_groups, req_context)):
            if key in insertion_only_keys:
                self._order.charge_store(key)
            elif key in reused_keys:
                self._order.charge_reuse(key)
            else:
                self._order.charge_offer(key)

    def evict(self, n: int, protected: set[bytes]) -> list[tuple[bytes, ChunkStatus]] | None:
        keys = self._order.evict(n, protected)
        return None if keys is None else [(key, self._chunks.pop(key)) for key in keys]

    def clear(self) -> None:
        self._order.clear()
        self._chunks.clear()
        self._generation += 1

    def mark_evictable(self, key: bytes) -> None:
        self._order.set_idle(key, True)

    def mark_non_evictable(self, key: bytes) -> None:
        self._order.set_idle(key, False)


class KvcastArcCachePolicy(KvcastCachePolicy):
    """Like KvcastCachePolicy, with adaptive replacement (ARC)."""

    policy = "arc"
