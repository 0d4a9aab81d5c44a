"""Checks that the parts of vLLM that the plug-in uses are as the plug-in expects."""
import inspect

import kvcast

# The options that vLLM's factory passes to a publisher.
ARGUMENTS = {"data_parallel_rank", "endpoint", "replay_endpoint", "buffer_steps", "hwm", "max_queue_size", "topic"}
METHODS = {"publish", "shutdown"}
DIALECTS = [f"vllm-{number}" for number in range(12, 8, -1)]

# A value for each field of an event.
_VALUES = {
    "block_hashes": [1, 2], "parent_block_hash": 3, "token_ids": [4, 5, 6, 7], "block_size": 2, "lora_id": 8,
    "medium": "GPU", "lora_name": "adapter", "extra_keys": [("salt",), None], "group_idx": 1,
    "kv_cache_spec_kind": "sliding_window", "kv_cache_spec_sliding_window": 9, "locality": "LOCAL",
    "ownership": "tier", "session_id": "session", "lookahead_token_ids": [[10], [11]],
}
_EVENTS = {"BlockStored", "BlockRemoved", "AllBlocksCleared"}
_ENDPOINTS = {  # endpoint: (endpoint of rank 2, whether vLLM's publisher binds the endpoint)
    "tcp://*:5557": ("tcp://*:5559", True), "tcp://10.0.0.1:5557": ("tcp://10.0.0.1:5559", False),
    "tcp://[::1]:5557": ("tcp://[::1]:5559", True), "tcp://127.0.0.1:5557": ("tcp://127.0.0.1:5559", False),
    "tcp://*:0": ("tcp://*:0", True),
}


class SeamError(Exception):
    """A part of vLLM is not as the plug-in expects. The text names the part."""


def check(kv_events) -> str:
    """Check the module vllm.distributed.kv_events. Returns the dialect of its events: a name
    that kvcast.encode_batch accepts. Raises SeamError for the first difference."""
    _check_factory(kv_events)
    _check_publishers(kv_events)
    _check_endpoints(kv_events.ZmqEventPublisher)
    return _dialect(kv_events)


def binds(endpoint: str) -> bool:
    """Return whether kvcast's publisher binds the PUB socket of this endpoint. The rule is that of vLLM, but
    kvcast's publisher also binds port 0, because no socket can connect to port 0."""
    return "*" in endpoint or "::" in endpoint or endpoint.startswith("ipc://") or endpoint.endswith(":0")


def _check_factory(kv_events) -> None:
    factory = kv_events.EventPublisherFactory
    registry = getattr(factory, "_registry", None)
    if not isinstance(registry, dict) or "zmq" not in registry:
        raise SeamError("EventPublisherFactory has no registry with the publisher zmq")
    if list(inspect.signature(factory.register_publisher).parameters) != ["name", "ctor"]:
        raise SeamError("register_publisher has other arguments")


def _check_publishers(kv_events) -> None:
    arguments = set(inspect.signature(kv_events.ZmqEventPublisher.__init__).parameters) - {"self"}
    if arguments != ARGUMENTS:
        raise SeamError(f"the options of the publisher zmq differ in: {', '.join(sorted(arguments ^ ARGUMENTS))}")
    methods = set(kv_events.EventPublisher.__abstractmethods__)
    if methods != METHODS:
        raise SeamError(f"the abstract methods of a publisher differ in: {', '.join(sorted(methods ^ METHODS))}")
    if not callable(getattr(kv_events.EventPublisher, "get_publisher_config", None)):
        raise SeamError("a publisher has no get_publisher_config")


def _check_endpoints(publisher_class) -> None:
    for endpoint, (of_rank, bound) in _ENDPOINTS.items():
        if publisher_class.offset_endpoint_port(endpoint, 2) != of_rank:
            raise SeamError(f"the endpoint of rank 2 of {endpoint} is not {of_rank}")
        if publisher_class._is_bind_endpoint(endpoint) != bound:
            raise SeamError(f"the publisher zmq does not {'bind' if bound else 'connect to'} {endpoint}")


def _sample(kind, filled: bool):
    """Return an event. filled: True: each field has a value; False: only each required field has a value."""
    import msgspec

    values = {}
    for field in msgspec.structs.fields(kind):
        if field.name not in _VALUES:
            raise SeamError(f"{kind.__name__} has the unknown field {field.name}")
        if filled or field.required:
            values[field.name] = _VALUES[field.name]
    return kind(**values)


def _dialect(kv_events) -> str:
    """Return the dialect whose encoder writes the bytes of vLLM's encoder. Raises SeamError for a
    field or an event that kvcast does not know, because snapshots would omit it."""
    import msgspec

    kinds = kv_events.KVCacheEvent.__subclasses__()
    names = {kind.__name__ for kind in kinds if kind.__module__ == kv_events.__name__}
    if names != _EVENTS:
        raise SeamError(f"the kinds of events differ in: {', '.join(sorted(names ^ _EVENTS))}")
    events = [_sample(getattr(kv_events, name), filled) for name in sorted(_EVENTS) for filled in (True, False)]
    batch = kv_events.KVEventBatch(ts=1.5, events=events, data_parallel_rank=2)
    payload = msgspec.msgpack.Encoder().encode(batch)
    try:
        decoded = kvcast.decode_batch(payload)
    except kvcast.KvcastError as error:
        raise SeamError(f"kvcast cannot read the events: {error}") from None
    for dialect in DIALECTS:
        if kvcast.encode_batch(decoded, dialect) == payload:
            return dialect
    raise SeamError("kvcast has no dialect with the bytes of these events")
