"""KvcastEventPublisher: an event publisher of vLLM that publishes through KvEventPublisher. The import
of this module needs vLLM."""
import atexit
import ctypes
import os
import queue
import threading
import time
import weakref

import msgspec
from vllm.config.kv_events import KVEventsConfig
from vllm.distributed import kv_events

import kvcast

from ._vllm_seams import binds
from .vllm import Options

SHUTDOWN_S = 1.0  # maximum seconds to publish the queued batches at the shutdown
ROOM_S = 0.001  # seconds between two checks of a full queue

_living = weakref.WeakSet()  # the publishers of this process


class KvcastEventPublisher(kv_events.EventPublisher):
    """The publisher of one data-parallel rank.

    The constructor has the arguments of vLLM's ZmqEventPublisher, and the options of the plug-in.
    It binds or connects the sockets as vLLM does, except that it also binds port 0. Raises
    ValueError for a bad argument, and OSError for an address in use.

    publish only queues the batch, on the caller's thread. A thread of this object encodes the batch
    with vLLM's encoder. The threads of KvEventPublisher send it, keep it for replay, and answer
    requests for the status, for snapshots and for the hash scheme. Thread-safe."""

    def __init__(self, data_parallel_rank: int, endpoint: str = "tcp://*:5557", replay_endpoint: str | None = None,
                 buffer_steps: int = 10_000, hwm: int = 100_000, max_queue_size: int = 100_000, topic: str = "",
                 *, options: Options = Options(), dialect: str = "vllm-12", logger=None) -> None:
        super().__init__(data_parallel_rank)
        self._logger = logger or kv_events.logger
        self._publisher = kvcast.KvEventPublisher(
            endpoint, replay_endpoint or "", topic, data_parallel_rank, dialect=dialect,
            ring_batches=max(1, buffer_steps), send_hwm=hwm, heartbeat_ms=0, hashes_only=options.hashes_only,
            curve_key=options.curve_key, curve_clients=options.curve_clients, bind=binds(endpoint),
            host_ip=_node_address(endpoint, replay_endpoint), answer_challenges=True, hash_seeds=_hash_seeds())
        self._config = KVEventsConfig(
            enable_kv_cache_events=True, publisher="zmq",
            endpoint=_resolved(endpoint, data_parallel_rank, self._publisher.endpoint),
            replay_endpoint=_resolved(replay_endpoint, data_parallel_rank, self._publisher.replay_endpoint),
            buffer_steps=buffer_steps, hwm=hwm, max_queue_size=max_queue_size, topic=topic)
        self._limit = max_queue_size if max_queue_size > 0 else float("inf")
        # A SimpleQueue hands over a batch in about a tenth of the time of a Queue. It has no bound.
        self._queue = queue.SimpleQueue()
        self._closed = None  # the reason why publish fails
        self._shutdown_lock = threading.Lock()
        self._thread = threading.Thread(target=_run, args=(self._queue, self._publisher, self._logger),
                                        daemon=True, name="kvcast-publisher")
        self._thread.start()
        # The thread ends if the object is dropped without a shutdown.
        weakref.finalize(self, self._queue.put, None).atexit = False
        _living.add(self)

    @property
    def endpoint(self) -> str:
        """The endpoint of the PUB socket, with its actual port."""
        return self._publisher.endpoint

    @property
    def replay_endpoint(self) -> str:
        """The endpoint of the replay socket, with its actual port. "": no replay."""
        return self._publisher.replay_endpoint

    def get_publisher_config(self) -> KVEventsConfig:
        """Return the configuration with the endpoints of this rank."""
        return self._config

    def counters(self) -> dict:
        """Return the counters of KvEventPublisher. `encode_errors` counts the batches that were not published."""
        return self._publisher.counters()

    def publish(self, events) -> None:
        """Queue a batch. A batch without a rank gets the rank of the publisher. The batch must not be
        changed afterwards. If max_queue_size batches wait, the call waits until one is encoded, as
        vLLM's publisher does. Raises RuntimeError after shutdown, in a child process after a fork,
        and if the thread has ended."""
        if self._closed is not None:
            raise RuntimeError(self._closed)
        if events.data_parallel_rank is None:
            events.data_parallel_rank = self._data_parallel_rank
        if self._queue.qsize() >= self._limit:
            self._wait_for_room()
        self._queue.put(events)

    def shutdown(self) -> None:
        """Publish the queued batches, for at most one second. Then close the sockets, and wait up to one
        second until the subscribers have the batches. A second call has no effect. A call in a child
        process after a fork has no effect."""
        with self._shutdown_lock:
            if self._closed is not None:
                return
            self._closed = "Publisher is closed"
        self._queue.put(None)
        self._thread.join(SHUTDOWN_S)
        if self._thread.is_alive():
            self._logger.warning("kvcast: %d batches were not published within %s seconds after the shutdown",
                                 self._queue.qsize(), SHUTDOWN_S)
        self._publisher.close()

    def _wait_for_room(self) -> None:
        while self._queue.qsize() >= self._limit:
            if self._closed is not None:
                raise RuntimeError(self._closed)
            if not self._thread.is_alive():
                raise RuntimeError("the thread of the publisher has ended")
            time.sleep(ROOM_S)

    def _leave_in_child(self) -> None:
        """Makes this copy of the publisher unusable. The threads do not exist in the child process, so
        the destructor of KvEventPublisher would wait for ever: the object must never be freed."""
        self._closed = f"the publisher belongs to the process {os.getppid()}"
        self._shutdown_lock = threading.Lock()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._publisher))


def constructor(options: Options, dialect: str, logger, release: str):
    """Return the function that vLLM's factory calls for the publisher "zmq". `release`: a text about
    the release of vLLM, for the line that the function logs."""

    def make(data_parallel_rank: int, endpoint: str = "tcp://*:5557", replay_endpoint: str | None = None, **more):
        if any(text and text.startswith("inproc://") for text in (endpoint, replay_endpoint)):
            if options.protects:
                raise ValueError("kvcast: inproc endpoints have no CURVE and no hashes-only mode")
            logger.warning("kvcast: inproc endpoints belong to the libzmq of pyzmq, so vLLM's own publisher is used")
            return kv_events.ZmqEventPublisher(data_parallel_rank, endpoint, replay_endpoint, **more)
        made = KvcastEventPublisher(data_parallel_rank, endpoint, replay_endpoint, **more, options=options,
                                    dialect=dialect, logger=logger)
        logger.info("kvcast %s publishes the KV events of rank %d in place of vLLM's publisher: %s, replay %s%s%s; %s",
                    kvcast.__version__, data_parallel_rank, made.endpoint, made.replay_endpoint or "none",
                    ", CURVE" if options.curve_key else "", ", hashes only" if options.hashes_only else "", release)
        return made

    make.kvcast = True
    return make


def _node_address(*endpoints: str | None) -> str:
    """Return the address of this node if an endpoint needs it, otherwise ""."""
    return kv_events.get_ip() if "tcp://*:0" in endpoints else ""


def _resolved(endpoint: str | None, rank: int, bound: str) -> str | None:
    """Return the endpoint of this rank. A port that the system has chosen replaces 0 and *."""
    if endpoint and endpoint.endswith((":0", ":*")):
        return bound
    return kv_events.ZmqEventPublisher.offset_endpoint_port(endpoint, rank)


def _hash_seeds() -> list[str]:
    """Return the seed of vLLM's block hashes if the operator has set it. vLLM reads the same variable."""
    seed = os.environ.get("PYTHONHASHSEED")
    return [] if seed is None else [seed]


def _run(batches: queue.SimpleQueue, publisher, logger) -> None:
    """The thread: publishes the batches of the queue until it gets None. A batch that cannot be
    encoded uses a sequence number, so subscribers see its loss. The thread keeps no reference to
    KvcastEventPublisher."""
    encode = msgspec.msgpack.Encoder().encode
    while (batch := batches.get()) is not None:
        try:
            payload = encode(batch)
        except Exception:
            logger.exception("kvcast: a batch cannot be encoded; its sequence number is a gap")
            payload = b""
        try:
            publisher.publish_payload(payload)
        except kvcast.ClosedError:
            return
        except kvcast.KvcastError as error:
            if payload:  # the error of a batch without bytes is logged above
                logger.error("kvcast: a batch cannot be published; its sequence number is a gap: %s", error)
        batch = payload = None


def _after_fork() -> None:
    for publisher in list(_living):
        publisher._leave_in_child()


def _at_exit() -> None:
    """Ends the threads before the interpreter ends."""
    for publisher in list(_living):
        publisher.shutdown()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
