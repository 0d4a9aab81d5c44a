"""The class Subscriber: the C++ subscriber, and asyncio."""

from __future__ import annotations

import asyncio
import os

from . import _kvcast


class Subscriber(_kvcast._Subscriber):
    """Receive the event streams of publishers, and fill gaps with replay.

    endpoint: PUB socket of the first source; None: the subscriber starts without a source. replay_endpoint, topic: as
        in add. name: name of the first source; None: the endpoint is the name.
    max_batches, max_bytes: limits of the queue between the sockets and the reader. If an item does not fit, all queued
        batches are dropped, and at most two resets of each source remain: its last "restart", and one reset after the
        restart. The second reset is "lost_batches" if a batch after the restart was dropped.
    curve_key: path of the subscriber's secret key (CURVE), for sources with a server_key; "": none.

    Iterate over the subscriber with `for` or `async for` to get StreamItem objects. The batches of a source come in the
    order of their sequence numbers, each at most once. After a reset item, the reader must drop the state that it has
    built from earlier items of the source. The iteration ends after close. Several threads and tasks may iterate; each
    item goes to one of them. Thread-safe. Do not use the subscriber in a child process after a fork.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        replay_endpoint: str = "",
        topic: str = "",
        *,
        name: str | None = None,
        max_batches: int = 65536,
        max_bytes: int = 256 << 20,
        curve_key: str = "",
    ) -> None:
        super().__init__(max_batches, max_bytes, curve_key)
        if endpoint is not None:
            self.add(endpoint if name is None else name, endpoint, replay_endpoint, topic)
        elif name is not None or replay_endpoint or topic:
            raise _kvcast.InvalidArgumentError("endpoint: required with name, replay_endpoint and topic")

    def __aiter__(self) -> Subscriber:
        return self

    async def __anext__(self) -> _kvcast.StreamItem:
        while True:
            try:
                item = self.get(0)
            except _kvcast.ClosedError:
                raise StopAsyncIteration from None
            if item is not None:
                return item
            await self._readable()

    async def _readable(self) -> None:
        # The event loop accepts a descriptor only once, so each waiting task adds its own duplicate.
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        descriptor = os.dup(self.fileno())
        loop.add_reader(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
