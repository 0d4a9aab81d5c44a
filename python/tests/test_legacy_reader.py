"""A legacy subscriber with vLLM's own types (msgspec) decodes everything that the package publishes."""
from typing import Any, Optional, Union

import pytest
from conftest import stored

import kvcast

msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed")
zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")


# The types of vLLM's example subscribers: of v0.20 to v0.32 (events are arrays), and of v0.33 (events are maps).
class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[Any]
    data_parallel_rank: Optional[int] = None


class KVCacheEvent(msgspec.Struct, array_like=True, omit_defaults=True, gc=False, tag=True):
    pass


class BlockStored(KVCacheEvent):
    block_hashes: list[Union[int, bytes]]
    parent_block_hash: Optional[Union[int, bytes]]
    token_ids: list[int]
    block_size: int
    lora_id: Optional[int]
    medium: Optional[str]
    lora_name: Optional[str]
    extra_keys: Optional[list[Any]] = None
    group_idx: Optional[int] = None
    kv_cache_spec_kind: Optional[str] = None
    kv_cache_spec_sliding_window: Optional[int] = None


class BlockRemoved(KVCacheEvent):
    block_hashes: list[Union[int, bytes]]
    medium: Optional[str]
    group_idx: Optional[int] = None


class AllBlocksCleared(KVCacheEvent):
    pass


class KVEventBatch(EventBatch):
    events: list[Union[BlockStored, BlockRemoved, AllBlocksCleared]]


class MapEvent(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    pass


class MapStored(MapEvent, tag="BlockStored"):
    block_hashes: list[Union[int, bytes]]
    parent_block_hash: Optional[Union[int, bytes]]
    token_ids: list[int]
    block_size: int
    lora_id: Optional[int]
    medium: Optional[str]
    lora_name: Optional[str]
    extra_keys: Optional[list[Any]] = None
    group_idx: Optional[int] = None
    kv_cache_spec_kind: Optional[str] = None
    kv_cache_spec_sliding_window: Optional[int] = None
    lookahead_token_ids: Optional[list[list[int]]] = None


class MapRemoved(MapEvent, tag="BlockRemoved"):
    block_hashes: list[Union[int, bytes]]
    medium: Optional[str]
    group_idx: Optional[int] = None


class MapCleared(MapEvent, tag="AllBlocksCleared"):
    pass


class MapBatch(EventBatch):
    events: list[Union[MapStored, MapRemoved, MapCleared]]


READERS = [("vllm-8", KVEventBatch), ("vllm-12", MapBatch)]


def events(prompt):
    """Stores, removes and clears, with all forms of hashes and optional fields."""
    for i in range(200):
        tokens = [token + i for token in prompt]
        yield stored(tokens, medium="GPU", group_idx=i % 3)
        yield stored(tokens, medium="CPU", lora_name="l", lora_id=1, extra_keys=[["l", ("i", 3)], None, None, None])
        yield kvcast.BlockStored(kvcast.compute_block_hashes(tokens, form="bytes"), tokens, 16, parent_block_hash=b"\1" * 32,
                                 kv_cache_spec_kind="sliding_window", kv_cache_spec_sliding_window=64)
        yield kvcast.BlockRemoved([i, 2**64 - 1 - i, b"\2" * 32], medium="GPU", group_idx=0)
        yield kvcast.AllBlocksCleared()


def compare(publisher, socket, decoder, sent):
    """Publishes the events, and compares each with the event that the subscriber decodes."""
    socket.setsockopt(zmq.SUBSCRIBE, b"kv")
    socket.setsockopt(zmq.RCVTIMEO, 200)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.connect(publisher.endpoint)
    while True:  # until the subscription has arrived at the publisher
        first = publisher.publish([])
        try:
            socket.recv_multipart()
            break
        except zmq.Again:
            continue
    socket.setsockopt(zmq.RCVTIMEO, 60000)
    for event in sent:
        publisher.publish([event], ts=1.5)
    decoded = 0
    for expected in sent:
        topic, seq, data = socket.recv_multipart()
        while int.from_bytes(seq, "big") <= first:
            topic, seq, data = socket.recv_multipart()
        batch = decoder.decode(data)
        assert topic == b"kv" and batch.ts == 1.5 and batch.data_parallel_rank == 0
        (event,) = batch.events
        assert type(event).__name__.replace("Map", "Block").replace("BlockCleared", "AllBlocksCleared") == type(expected).__name__
        for name in event.__struct_fields__:
            expected_value, value = getattr(expected, name), getattr(event, name)
            if name == "extra_keys" and value is not None:
                value = [keys and [list(key) if isinstance(key, (list, tuple)) else key for key in keys] for keys in value]
            assert value == expected_value, (name, value, expected_value)
        decoded += 1
    assert decoded == len(sent) == 1000


@pytest.mark.parametrize("dialect, reader", READERS)
def test_a_legacy_subscriber_decodes_every_event(prompt, dialect, reader):
    decoder = msgspec.msgpack.Decoder(reader)
    sent = list(events(prompt))
    with zmq.Context() as context, kvcast.KvEventPublisher("tcp://127.0.0.1:0", topic="kv", dialect=dialect, heartbeat_ms=0) as publisher:
        with context.socket(zmq.SUB) as socket:
            socket.setsockopt(zmq.LINGER, 0)
            compare(publisher, socket, decoder, sent)
