"""Part of the stand-in for vLLM: the interfaces of offloading. They follow vllm.__version__: 0.32 or 0.33."""
from abc import ABC, abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any

import numpy as np

import vllm
from vllm.v1.metrics.cache_hit_source import CacheHitSource

V033 = vllm.__version__ >= "0.33"


def make_offload_key(block_hash: bytes, group_idx: int) -> bytes:
    return block_hash + group_idx.to_bytes(4, "big")


class Medium(Enum):
    CPU = "CPU"
    STORAGE = "STORAGE"


class LookupResult(Enum):
    MISS = auto()
    HIT = auto()
    HIT_PENDING = auto()
    RETRY = auto()


@dataclass
class ReqContext:
    """A request: the states that managers keep, by type, and the last token of the prefix of each key."""
    req_id: str
    _state: dict = field(default_factory=dict, init=False)
    _ends: dict = field(default_factory=dict, init=False)

    def set_state(self, value) -> None:
        self._state[type(value)] = value

    def get_state(self, kind):
        return self._state.get(kind)

    def set_offload_key_position(self, key: bytes, end_token: int) -> None:
        self._ends[key] = end_token

    def get_offload_key_position(self, key: bytes) -> int | None:
        return self._ends.get(key)


@dataclass
class RequestOffloadingContext:
    policy: str = "chunk_level"


@dataclass
class PrepareStoreOutput:
    keys_to_store: list[bytes]
    store_spec: Any
    evicted_keys: list[bytes]


@dataclass
class OffloadingEvent:
    keys: list[bytes]
    medium: Medium
    removed: bool
    locality: str | None = None
    ownership: str | None = None
    removal_expected: bool = False
    if V033:
        metadata_only: bool = False


class OffloadingManager(ABC):
    @abstractmethod
    def lookup(self, key, req_context): ...

    @abstractmethod
    def prepare_load(self, keys, req_context): ...

    @abstractmethod
    def prepare_store(self, keys, req_context): ...

    @abstractmethod
    def on_new_request(self, req_context): ...

    def get_load_source(self, key, req_context):
        return CacheHitSource.EXTERNAL_UNSPECIFIED

    def touch(self, keys, req_context): ...

    def complete_load(self, keys, req_context): ...

    def complete_store(self, keys, req_context, success=True): ...

    def on_request_finished(self, req_context): ...

    def take_events(self):
        return ()

    def on_schedule_end(self, context): ...

    def has_pending_work(self):
        return False

    def reset_cache(self): ...

    def get_stats(self):
        return None

    def shutdown(self): ...

    if V033:
        @property
        def lock(self):
            return nullcontext()

        def on_reset_flushed(self): ...

        def config_info(self):
            return [{}]


class BlockIDsLoadStoreSpec:
    def __init__(self, block_ids):
        self.block_ids = np.array(block_ids, dtype=np.int32)


class GPULoadStoreSpec(BlockIDsLoadStoreSpec):
    def __init__(self, block_ids, group_sizes, block_indices):
        super().__init__(block_ids)
        self.group_sizes, self.block_indices = group_sizes, block_indices


@dataclass
class CanonicalKVCacheTensor:
    tensor: Any
    page_size_bytes: int


@dataclass
class CanonicalKVCacheRef:
    tensor_idx: int
    page_size_bytes: int


@dataclass
class CanonicalKVCaches:
    tensors: list[CanonicalKVCacheTensor]
    group_data_refs: list[list[CanonicalKVCacheRef]]


@dataclass
class TransferResult:
    job_id: int
    success: bool
    transfer_size: int | None = None
    transfer_time: float | None = None


class OffloadingWorker(ABC):
    @abstractmethod
    def submit_store(self, job_id, src_spec, dst_spec): ...

    @abstractmethod
    def submit_load(self, job_id, src_spec, dst_spec): ...

    @abstractmethod
    def get_finished(self): ...

    @abstractmethod
    def wait(self, job_ids): ...

    def shutdown(self): ...


class OffloadingSpec(ABC):
    def __init__(self, config):
        self.config, self.extra_config = config, config.extra_config
        self.kv_events_config = SimpleNamespace(enable_kv_cache_events=config.enable_kv_cache_events)
        self.blocks_per_chunk = config.cache.blocks_per_chunk
