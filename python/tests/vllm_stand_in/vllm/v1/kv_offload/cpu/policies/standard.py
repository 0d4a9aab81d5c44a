"""Part of the stand-in for vLLM: its two cache policies, as simple as possible."""
from dataclasses import dataclass

from vllm.v1.kv_offload.cpu.policies.base import CachePolicy, order_request_keys


@dataclass
class _RequestRank:
    policy: object
    generation: int  # number of times that the policy was cleared
    rank: int


class LRUCachePolicy(CachePolicy):
    """Evicts the idle chunk with the lowest rank. Of equal ranks, evicts the longest prefix first."""

    def __init__(self, cache_capacity: int):
        super().__init__(cache_capacity)
        self.chunks, self.places, self.last_rank, self.generation = {}, {}, 0, 0

    def _new_rank(self) -> int:
        self.last_rank += 1
        return self.last_rank

    def _rank_of(self, req_context) -> int:
        state = req_context.get_state(_RequestRank)
        if state is None or state.policy is not self or state.generation != self.generation:
            state = _RequestRank(self, self.generation, self._new_rank())
            req_context.set_state(state)
        return state.rank

    def get(self, key):
        return self.chunks.get(key)

    def insert(self, key, chunk, req_context=None):
        end = None if req_context is None else req_context.get_offload_key_position(key)
        self.places[key] = (self._new_rank(), 0) if end is None else (self._rank_of(req_context), -end)
        self.chunks[key] = chunk

    def remove(self, key):
        del self.chunks[key], self.places[key]

    def touch(self, keys, req_context):
        for key in reversed(list(keys)):
            if key in self.chunks:
                self.places[key] = (self._new_rank(), 0)

    def on_request_access(self, keys, req_context):
        rank = self._rank_of(req_context)
        for key in keys:
            end = req_context.get_offload_key_position(key)
            if end is not None and key in self.chunks:
                self.places[key] = max(self.places[key], (rank, -end))

    def evict(self, n, protected):
        idle = sorted((place, key) for key, place in self.places.items()
                      if self.chunks[key].ref_cnt == 0 and key not in protected)
        if len(idle) < n:
            return None
        victims = [(key, self.chunks[key]) for _, key in idle[:n]]
        for key, _ in victims:
            self.remove(key)
        return victims

    def clear(self):
        self.chunks.clear()
        self.places.clear()
        self.generation += 1


class ARCCachePolicy(CachePolicy):
    """T1: used once. T2: used again. B1 and B2: keys evicted from T1 and T2. Each dict begins with the oldest key."""

    def __init__(self, cache_capacity: int):
        super().__init__(cache_capacity)
        self.clear()

    def clear(self):
        self.t1, self.t2, self.b1, self.b2, self.target = {}, {}, {}, {}, 0.0

    def get(self, key):
        return self.t1.get(key) or self.t2.get(key)

    def insert(self, key, chunk, req_context=None):
        self.t1[key] = chunk
        self.b1.pop(key, None)
        self.b2.pop(key, None)

    def remove(self, key):
        self.t1.pop(key, None)
        self.t2.pop(key, None)

    def on_store_miss(self, keys, req_context):
        for key in reversed(list(keys)):
            for ghosts, other, sign in ((self.b1, self.b2, 1), (self.b2, self.b1, -1)):
                if key in ghosts:
                    target = self.target + sign * max(1, len(other) / len(ghosts))
                    self.target = min(max(target, 0), self.cache_capacity)
                    ghosts[key] = ghosts.pop(key)
                    break

    def _renew(self, key, again: bool):
        """Make the chunk the newest of its list, or of T2 if it was used again."""
        target = self.t2 if again or key in self.t2 else self.t1
        target[key] = self.t1.pop(key) if key in self.t1 else self.t2.pop(key)

    def touch(self, keys, req_context):
        for key in reversed(list(keys)):
            if self.get(key) is None:
                self.on_store_miss([key], req_context)
            else:
                self._renew(key, self.get(key).is_ready)

    def on_request_finished(self, key_groups, insertion_only_keys, reused_keys, req_context):
        for key in reversed(order_request_keys(key_groups, req_context)):
            if self.get(key) is not None and key in insertion_only_keys | reused_keys:
                self._renew(key, key in reused_keys)

    def evict(self, n, protected):
        lists = [[key for key, chunk in chunks.items() if chunk.ref_cnt == 0 and key not in protected]
                 for chunks in (self.t1, self.t2)]
        size, victims = len(self.t1), []
        for _ in range(n):
            first = 0 if size >= int(self.target) else 1
            source = first if lists[first] else 1 - first
            if not lists[source]:
                return None
            size -= source == 0
            victims.append((lists[source].pop(0), source))
        result = []
        for key, source in victims:
            chunks, ghosts = ((self.t1, self.b1), (self.t2, self.b2))[source]
            result.append((key, chunks.pop(key)))
            ghosts[key] = None
        for ghosts in (self.b1, self.b2):
            while len(ghosts) > self.cache_capacity:
                del ghosts[next(iter(ghosts))]
        return result
