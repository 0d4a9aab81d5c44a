"""Part of the stand-in for vLLM: the events, the base class of publishers and the factory."""
import logging
from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any

import msgspec

logger = logging.getLogger("vllm")


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class KVCacheEvent(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    pass


class BlockStored(KVCacheEvent):
    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None
    lookahead_token_ids: list[list[int]] | None = None


class BlockRemoved(KVCacheEvent):
    block_hashes: list[int | bytes]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class AllBlocksCleared(KVCacheEvent):
    pass


class KVEventBatch(EventBatch):
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]


def get_ip() -> str:
    return "127.0.0.1"


class EventPublisher(ABC):
    def __init__(self, data_parallel_rank: int = 0) -> None:
        self._data_parallel_rank = data_parallel_rank

    @abstractmethod
    def publish(self, events) -> None: ...

    @abstractmethod
    def shutdown(self) -> None: ...

    def get_publisher_config(self):
        return None


class ZmqEventPublisher(EventPublisher):
    """Publishes nothing."""

    def __init__(self, data_parallel_rank: int, endpoint: str = "tcp://*:5557", replay_endpoint: str | None = None,
                 buffer_steps: int = 10_000, hwm: int = 100_000, max_queue_size: int = 100_000, topic: str = "") -> None:
        super().__init__(data_parallel_rank)

    def publish(self, events) -> None:
        pass

    def shutdown(self) -> None:
        pass

    @staticmethod
    def _is_bind_endpoint(endpoint: str) -> bool:
        return endpoint.startswith(("ipc:", "inproc:")) or any(part in endpoint for part in ("*", "::"))

    @staticmethod
    def offset_endpoint_port(endpoint: str | None, rank: int) -> str | None:
        if not endpoint or rank == 0:
            return endpoint
        if "tcp" not in endpoint:
            raise ValueError("no tcp endpoint")
        address, port = endpoint.rsplit(":", 1)
        return endpoint if int(port) == 0 else f"{address}:{int(port) + rank}"


class EventPublisherFactory:
    _registry = {"zmq": ZmqEventPublisher}

    @classmethod
    def register_publisher(cls, name: str, ctor) -> None:
        if name in cls._registry:
            raise KeyError(name)
        cls._registry[name] = ctor

    @classmethod
    def create(cls, config, data_parallel_rank: int = 0):
        options = asdict(config)
        del options["enable_kv_cache_events"]
        return cls._registry[options.pop("publisher")](data_parallel_rank=data_parallel_rank, **options)
