"""KvEventPublisher and Subscriber, over real sockets. A test waits for an event, never for a time."""
import asyncio
import gc
import os
import signal
import threading
import time

import pytest
from conftest import FULL, in_threads, payload, stored

import kvcast

WAIT_S = 60  # a test that waits longer fails


@pytest.fixture
def publisher():
    with kvcast.KvEventPublisher("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", "kv", heartbeat_ms=0) as made:
        yield made


@pytest.fixture
def subscriber(publisher):
    with kvcast.Subscriber(publisher.endpoint, publisher.replay_endpoint, "kv", name="e0") as made:
        yield made


def next_of(subscriber):
    item = subscriber.get(WAIT_S)
    assert item is not None, "no item arrived"
    return item


def wait_until_synced(subscriber):
    """A replay delivers its batches before its end, and the end makes the source synced."""
    end = time.monotonic() + WAIT_S
    while subscriber.status("e0")["state"] != "synced":
        assert time.monotonic() < end, subscriber.status("e0")
        time.sleep(0.001)


def test_all_events_arrive_in_order(publisher, subscriber, prompt):
    store = stored(prompt)
    more = {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
    sent = [
        publisher.publish_stored(store.block_hashes, prompt, 16, ts=1.5, **more),
        publisher.publish_removed(store.block_hashes, group_idx=0, medium="GPU"),
        publisher.publish_cleared(),
        publisher.publish([store, kvcast.AllBlocksCleared()], ts=2.5),
        publisher.publish(kvcast.EventBatch([store], ts=3.5)),
        publisher.publish_payload(payload(store)),
    ]
    publisher.add([store], ts=4.5)
    publisher.flush()
    assert sent == list(range(6)) and publisher.next_seq == 7
    items = [next_of(subscriber) for _ in range(7)]
    assert [(item.source, item.seq, item.reset) for item in items] == [("e0", i, None) for i in range(7)]
    batches = [item.decode() for item in items]
    assert [len(batch.events) for batch in batches] == [1, 1, 1, 2, 1, 1, 1]
    assert batches[0].events == [store] and (batches[0].ts, batches[0].data_parallel_rank) == (1.5, 0)
    assert batches[1].events[0].medium == "GPU" and kvcast.decode_batch(items[3].payload) == batches[3]
    assert publisher.counters()["batches"] == 7
    wait_until_synced(subscriber)
    assert subscriber.dropped == 0


def test_a_late_subscriber_gets_the_history(publisher, prompt):
    for _ in range(20):
        publisher.publish([stored(prompt)])
    with kvcast.Subscriber(publisher.endpoint, publisher.replay_endpoint, "kv") as late:
        items = [next_of(late) for _ in range(20)]
    assert [item.seq for item in items] == list(range(20)) and items[0].source == publisher.endpoint


def test_an_index_follows_a_stream(publisher, subscriber, prompt):
    indexer = kvcast.KvIndexer()
    indexer.add_source("e0", groups=FULL, eagle=False, reports_hits=False)
    publisher.publish([stored(prompt)])
    item = next_of(subscriber)
    indexer.apply(item.source, item.payload, item.seq)
    scores = indexer.find_matches(token_ids=prompt + [1])
    assert scores.scores == {("e0", 0): 4} and scores.exact == {("e0", 0): True}


def test_a_restart_is_a_reset(prompt):
    address = None
    with kvcast.Subscriber() as subscriber:
        for run in range(2):
            endpoints = address or ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
            with kvcast.KvEventPublisher(*endpoints, heartbeat_ms=100) as publisher:
                if address is None:
                    address = (publisher.endpoint, publisher.replay_endpoint)
                    subscriber.add("e0", *address)
                publisher.publish([stored(prompt)])
                if run == 0:
                    assert next_of(subscriber).seq == 0
                    continue
                for item in subscriber:
                    if item.reset is not None:
                        break
                assert item.reset == "restart" and item.payload is None and item.seq == 0
                with pytest.raises(kvcast.StateError):
                    item.decode()
                assert next_of(subscriber).seq == 0


def test_the_iteration_ends_with_close(publisher, subscriber, prompt):
    publisher.publish([stored(prompt)])
    seen = threading.Event()
    result = []

    def read():
        for item in subscriber:
            result.append(item.seq)
            seen.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert seen.wait(WAIT_S)
    subscriber.close()
    thread.join(WAIT_S)
    assert not thread.is_alive() and result == [0] and list(subscriber) == []


def test_asyncio(publisher, subscriber, prompt):
    async def read(count):
        seqs = []
        async for item in subscriber:
            seqs.append(item.seq)
            publisher.publish([stored(prompt)])
            if len(seqs) == count:
                return seqs

    async def main():
        task = asyncio.ensure_future(read(3))
        await asyncio.sleep(0)
        publisher.publish([stored(prompt)])
        return await asyncio.wait_for(task, WAIT_S)

    assert asyncio.run(main()) == [0, 1, 2]

    async def after_close():
        subscriber.close()
        return [item async for item in subscriber]

    assert len(asyncio.run(after_close())) <= 1


def test_a_cancelled_task_leaves_the_subscriber_usable(publisher, subscriber, prompt):
    async def main():
        tasks = [asyncio.ensure_future(subscriber.__anext__()) for _ in range(3)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        publisher.publish([stored(prompt)])
        return (await asyncio.wait_for(subscriber.__anext__(), WAIT_S)).seq

    assert asyncio.run(main()) == 0


def test_close_wakes_a_waiting_task(subscriber):
    async def main():
        task = asyncio.ensure_future(subscriber.__anext__())
        await asyncio.sleep(0)
        subscriber.close()
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(task, WAIT_S)

    asyncio.run(main())


def test_a_full_queue_drops_batches_and_delivers_a_reset(publisher, prompt):
    with kvcast.Subscriber(publisher.endpoint, publisher.replay_endpoint, "kv", name="e0", max_batches=4) as subscriber:
        for _ in range(50):
            publisher.publish([stored(prompt)])
        indexer, resets, item = kvcast.KvIndexer(), 0, None
        while item is None or item.seq < 49:
            item = next_of(subscriber)
            if item.reset is not None:
                assert item.reset == "lost_batches"
                resets += 1
                if "e0" in indexer.sources:
                    indexer.reset("e0", item.reset)
            else:
                indexer.apply("e0", item.payload, item.seq)
            if resets == 0 and subscriber.dropped == 0:
                # No batch is lost yet. Publish one more, so that the queue becomes full.
                publisher.publish([stored(prompt)])
        assert (subscriber.dropped > 0) == (resets > 0)
        exact = indexer.find_matches(token_ids=prompt + [1]).exact[("e0", 0)]
        assert not (exact and resets > 0)


def wait_until_taken(subscriber, next_seq, resets=0):
    end = time.monotonic() + WAIT_S
    while subscriber.status("e0")["next_seq"] < next_seq or subscriber.status("e0")["resets"] < resets:
        assert time.monotonic() < end, subscriber.status("e0")
        time.sleep(0.001)


def test_a_full_queue_without_a_reader_keeps_one_reset_and_the_last_batches(publisher, prompt):
    with kvcast.Subscriber(publisher.endpoint, publisher.replay_endpoint, "kv", name="e0", max_batches=4) as subscriber:
        for _ in range(100):
            publisher.publish([stored(prompt)])
        wait_until_taken(subscriber, 100)
        items = [next_of(subscriber)]
        while items[-1].seq != 99:
            items.append(next_of(subscriber))
        dropped = subscriber.dropped
    assert items[0].reset == "lost_batches" and [item.reset for item in items[1:]] == [None] * (100 - dropped)
    assert len(items) <= 5 and [item.seq for item in items[1:]] == list(range(dropped, 100))


def test_restarts_leave_few_resets_in_a_queue_without_a_reader(prompt):
    """Each heartbeat is a batch too."""
    address = None
    with kvcast.Subscriber(max_batches=1) as subscriber:
        for run in range(5):
            endpoints = address or ("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
            with kvcast.KvEventPublisher(*endpoints, heartbeat_ms=100) as publisher:
                if address is None:
                    address = (publisher.endpoint, publisher.replay_endpoint)
                    subscriber.add("e0", *address)
                for _ in range(3):
                    publisher.publish([stored(prompt)])
                wait_until_taken(subscriber, 3, run)
    items = list(subscriber)  # the queued items can be read after the end
    assert [item.reset for item in items][:1] == ["restart"] and len(items) <= 4
    assert [item.reset for item in items].count("restart") == 1


def test_get_returns_none_after_its_timeout(subscriber):
    assert subscriber.get(0) is None and subscriber.get(0.01) is None


def test_a_timeout_may_end_inside_a_microsecond(subscriber):
    results = []
    thread = threading.Thread(target=lambda: results.append(subscriber.get(1 / 3)), daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert results == [None]


def test_the_descriptor_is_readable_only_with_an_item(publisher, subscriber, prompt):
    import select
    publisher.publish([stored(prompt)])
    assert select.select([subscriber.fileno()], [], [], WAIT_S)[0]
    next_of(subscriber)
    assert not select.select([subscriber.fileno()], [], [], 0)[0]


def test_hashes_only_removes_tokens(prompt):
    with kvcast.KvEventPublisher("tcp://127.0.0.1:0", "tcp://127.0.0.1:0", hashes_only=True) as publisher:
        with kvcast.Subscriber(publisher.endpoint, publisher.replay_endpoint) as subscriber:
            publisher.publish([stored(prompt)])
            assert next_of(subscriber).decode().events[0].token_ids in ([], None)


def test_bad_publishers_and_calls_raise(publisher):
    for bad, error in [
        (lambda: kvcast.KvEventPublisher("nonsense"), ValueError), (lambda: kvcast.KvEventPublisher(5), TypeError),
        (lambda: kvcast.KvEventPublisher(publisher.endpoint), kvcast.UnavailableError),
        (lambda: kvcast.KvEventPublisher("tcp://127.0.0.1:0", dp_rank=-1), ValueError),
        (lambda: kvcast.KvEventPublisher("tcp://127.0.0.1:0", dp_rank=2**63), TypeError),
        (lambda: kvcast.KvEventPublisher("tcp://127.0.0.1:0", dialect="x"), ValueError),
        (lambda: kvcast.KvEventPublisher("tcp://127.0.0.1:0", ring_batches=0), ValueError),
        (lambda: kvcast.KvEventPublisher("tcp://127.0.0.1:0", curve_key="x"), ValueError),
        (lambda: kvcast.KvEventPublisher("tcp://127.0.0.1:0", curve_key="/no", curve_clients="/no"), ValueError),
        (lambda: publisher.publish([1]), TypeError), (lambda: publisher.publish(5), TypeError),
        (lambda: publisher.publish([], ts=float("nan")), ValueError), (lambda: publisher.publish([], ts="x"), TypeError),
        (lambda: publisher.publish(kvcast.EventBatch(), ts=1.0), ValueError),
        (lambda: publisher.publish_payload(b""), ValueError), (lambda: publisher.publish_payload("x"), TypeError),
        (lambda: publisher.publish_stored([2**64], [1], 1), ValueError),
        (lambda: publisher.publish_stored([1], [-1], 1), ValueError),
        (lambda: publisher.publish_stored([1], [1], 1, nonsense=1), TypeError),
        (lambda: publisher.publish_removed([1.5]), TypeError),
        (lambda: publisher.publish_removed([1], group_idx=2**63), TypeError),
        (lambda: publisher.publish_cleared(medium=5), TypeError), (lambda: publisher.add([None]), TypeError),
        (lambda: publisher.publish([kvcast.BlockStored([1], [1], 1, lookahead_token_ids=[[]], token_offset=-1)]),
         ValueError),
    ]:
        with pytest.raises(error):
            bad()


def test_a_closed_publisher_raises_for_every_call(publisher, prompt):
    publisher.close()
    publisher.close()
    assert publisher.closed
    for call in [lambda: publisher.publish([]), lambda: publisher.publish_stored([1], [1], 1),
                 lambda: publisher.publish_removed([1]), lambda: publisher.publish_cleared(), lambda: publisher.flush(),
                 lambda: publisher.publish_payload(b"x"), lambda: publisher.add([]), lambda: publisher.next_seq,
                 lambda: publisher.endpoint, lambda: publisher.replay_endpoint, lambda: publisher.counters()]:
        with pytest.raises(kvcast.ClosedError):
            call()


def test_bad_subscribers_and_calls_raise(subscriber):
    for bad, error in [
        (lambda: kvcast.Subscriber("nonsense"), ValueError), (lambda: kvcast.Subscriber(5), TypeError),
        (lambda: kvcast.Subscriber(name="x"), ValueError), (lambda: kvcast.Subscriber(max_batches=0), ValueError),
        (lambda: kvcast.Subscriber(max_bytes=0), ValueError), (lambda: kvcast.Subscriber(max_batches=2**63), TypeError),
        (lambda: kvcast.Subscriber(curve_key="/no"), ValueError), (lambda: subscriber.add("e0", "tcp://127.0.0.1:1"),
                                                                   kvcast.StateError),
        (lambda: subscriber.add("", "tcp://127.0.0.1:1"), ValueError), (lambda: subscriber.add("x", "x"), ValueError),
        (lambda: subscriber.add("x", "tcp://127.0.0.1:1", server_key="k"), ValueError),
        (lambda: subscriber.remove("x"), LookupError), (lambda: subscriber.status("x"), LookupError),
        (lambda: subscriber.get(-1), ValueError), (lambda: subscriber.get(float("nan")), ValueError),
        (lambda: subscriber.get("x"), TypeError),
    ]:
        with pytest.raises(error):
            bad()
    subscriber.remove("e0")
    subscriber.close()
    subscriber.close()
    assert subscriber.closed
    for call in [lambda: subscriber.add("x", "tcp://127.0.0.1:1"), lambda: subscriber.remove("e0"),
                 lambda: subscriber.status("e0"), lambda: subscriber.get(), lambda: subscriber.get(0)]:
        with pytest.raises(kvcast.ClosedError):
            call()
    with pytest.raises(StopIteration):
        next(subscriber)


class Interrupt(Exception):
    """Stands for KeyboardInterrupt, which would end pytest."""


def test_iteration_raises_the_exception_of_a_signal_handler():
    """The handler also closes the subscriber, so the iterator has ended when the exception arrives."""
    subscriber, iterating = kvcast.Subscriber(), threading.Event()

    def interrupt(*_):
        if iterating.is_set() and not subscriber.closed:
            subscriber.close()
            raise Interrupt

    def send_signals():
        while not subscriber.closed:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            time.sleep(0.01)

    before = signal.signal(signal.SIGUSR1, interrupt)
    sender = threading.Thread(target=send_signals)
    try:
        sender.start()
        with pytest.raises(Interrupt):
            iterating.set()
            next(subscriber)
    finally:
        subscriber.close()
        sender.join()
        signal.signal(signal.SIGUSR1, before)


def test_threads_publish_and_read(publisher, subscriber, prompt):
    store, total = stored(prompt), 400

    def work(i):
        if i < 4:
            return [publisher.publish([store]) for _ in range(total // 4)]
        return [next_of(subscriber).seq for _ in range(total // 4)]

    results = in_threads(work)
    assert sorted(sum(results[:4], [])) == sorted(sum(results[4:], [])) == list(range(total))


def test_threads_close_while_others_publish(prompt):
    for _ in range(10):
        publisher = kvcast.KvEventPublisher("tcp://127.0.0.1:0", heartbeat_ms=0)
        subscriber = kvcast.Subscriber(publisher.endpoint)

        def work(i):
            try:
                if i == 0:
                    publisher.close()
                    subscriber.close()
                for _ in range(20):
                    publisher.publish([stored(prompt)])
                    subscriber.get(0)
                    subscriber.status(publisher.endpoint)
            except kvcast.ClosedError:
                return True

        in_threads(work, 4)


def test_objects_without_close_end_their_threads_and_sockets(prompt):
    def descriptors():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    def use():
        publisher = kvcast.KvEventPublisher("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
        subscriber = kvcast.Subscriber(publisher.endpoint, publisher.replay_endpoint)
        publisher.publish([stored(prompt)])
        next_of(subscriber)

    use()  # the first use opens descriptors that the process keeps
    before = descriptors()
    for _ in range(5):
        use()
    assert descriptors() <= before + 2
