"""Part of the stand-in for vLLM: the interface of cache policies."""
from abc import ABC, abstractmethod
from dataclasses import dataclass

from vllm.v1.kv_offload.base import V033


@dataclass
class ChunkStatus:
    chunk_id: int
    ref_cnt: int = -1  # -1: the store is in progress

    @property
    def is_ready(self) -> bool:
        return self.ref_cnt >= 0


def order_request_keys(key_groups, req_context) -> list[bytes]:
    """Return the keys by the position of their last token, if each key has a position."""
    keys = [key for group in key_groups for key in group]
    ends = {key: req_context.get_offload_key_position(key) for key in keys}
    return keys if None in ends.values() else sorted(keys, key=ends.get)


class CachePolicy(ABC):
    def __init__(self, cache_capacity: int):
        self.cache_capacity = cache_capacity

    @abstractmethod
    def get(self, key): ...

    if V033:
        @abstractmethod
        def insert(self, key, chunk, req_context): ...

        def on_request_access(self, keys, req_context): ...
    else:
        @abstractmethod
        def insert(self, key, chunk): ...

    @abstractmethod
    def remove(self, key): ...

    @abstractmethod
    def touch(self, keys, req_context): ...

    def on_store_miss(self, keys, req_context):
        self.touch(keys, req_context)

    def on_request_finished(self, key_groups, insertion_only_keys, reused_keys, req_context):
        self.touch(order_request_keys(key_groups, req_context), req_context)

    @abstractmethod
    def evict(self, n, protected): ...

    @abstractmethod
    def clear(self): ...

    def mark_evictable(self, key): ...

    def mark_non_evictable(self, key): ...
