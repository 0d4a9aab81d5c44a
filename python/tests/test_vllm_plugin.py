"""The plug-in for vLLM, with a stand-in for vLLM (folder vllm_stand_in). tests/live with --plugin uses a real
vLLM."""
import importlib
import importlib.metadata
import logging
import os
import pathlib
import subprocess
import sys
import threading

import pytest
from conftest import FULL, in_threads

import kvcast
import kvcast.vllm as plugin

msgspec = pytest.importorskip("msgspec", reason="msgspec is not installed")

WAIT_S = 60  # a test that waits longer fails
STAND_IN = pathlib.Path(__file__).parent / "vllm_stand_in"
SECRETS = [[1000 + i for i in range(16)], "salt-of-a-tenant", "adapter-of-a-tenant", "session-of-a-user"]


def forget_vllm():
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm" or name.startswith("kvcast._vllm")]:
        del sys.modules[name]
    for name in [name for name in vars(kvcast) if name.startswith("_vllm")]:
        delattr(kvcast, name)


@pytest.fixture
def vllm(monkeypatch):
    """The module kv_events of a fresh stand-in. The operator has asked for the plug-in."""
    forget_vllm()
    monkeypatch.syspath_prepend(str(STAND_IN))
    monkeypatch.setenv("KVCAST_VLLM_PUBLISHER", "1")
    yield importlib.import_module("vllm.distributed.kv_events")
    forget_vllm()


@pytest.fixture
def create(vllm):
    """Registers the plug-in, and returns a function that makes a publisher with vLLM's factory."""
    plugin.register()
    config = importlib.import_module("vllm.config.kv_events").KVEventsConfig
    made = []

    def make(rank=0, **more):
        more = {"endpoint": "tcp://127.0.0.1:*", "replay_endpoint": "tcp://127.0.0.1:*", "topic": "kv"} | more
        made.append(vllm.EventPublisherFactory.create(config(True, "zmq", **more), rank))
        return made[-1]

    yield make
    for publisher in made:
        publisher.shutdown()


def batch_of(vllm, number=0, events=None):
    """A batch with an event of each kind, and values in each field."""
    tokens = [token + 16 * number for token in SECRETS[0]]
    hashes = kvcast.compute_block_hashes(tokens, 16)
    store = vllm.BlockStored(list(hashes), None, tokens, 16, None, "GPU", SECRETS[2], [(SECRETS[1],)], 0, "full_attention",
                             session_id=SECRETS[3])
    return vllm.KVEventBatch(ts=1.5 + number, events=events if events is not None else [
        vllm.AllBlocksCleared(), store, vllm.BlockRemoved([number + 5], "GPU", 0)])


def store_of(vllm, tokens):
    return vllm.BlockStored(list(kvcast.compute_block_hashes(tokens, 16)), None, tokens, 16, None, "GPU", None, None, 0,
                            "full_attention")


def encoded(batch, rank=0):
    batch.data_parallel_rank = rank
    return msgspec.msgpack.Encoder().encode(batch)


def items_of(publisher, count, **more):
    with kvcast.Subscriber(publisher.endpoint, publisher.replay_endpoint, "kv", **more) as subscriber:
        return [subscriber.get(WAIT_S) for _ in range(count)]


def test_without_the_variable_vllm_is_untouched(vllm, monkeypatch):
    before = dict(vllm.EventPublisherFactory._registry)
    for value in ("0", "", None):
        if value is None:
            monkeypatch.delenv("KVCAST_VLLM_PUBLISHER")
        else:
            monkeypatch.setenv("KVCAST_VLLM_PUBLISHER", value)
        monkeypatch.setenv("KVCAST_VLLM_MISSPELT", "1")
        forget_vllm()
        plugin.register()
        assert not any(name.split(".")[0] == "vllm" for name in sys.modules)
    assert vllm.EventPublisherFactory._registry == before


def test_the_import_needs_no_vllm():
    assert "register" in dir(plugin) and plugin.options_of({}) == plugin.Options()
    entry = [entry for entry in importlib.metadata.entry_points(group="vllm.general_plugins") if entry.name == "kvcast"]
    if not entry:
        pytest.skip("the package is not installed, so it has no entry points")
    assert entry[0].load() is plugin.register


@pytest.mark.parametrize("variables", [
    {"PUBLISHER": "yes"}, {"HASHES_ONLY": "2"}, {"CURVE_KEY": "/key"}, {"CURVE_CLIENTS": "/clients"}, {"CURVE_KEYS": "/k"}])
def test_bad_variables_raise(variables):
    variables = {"KVCAST_VLLM_" + name: value for name, value in ({"PUBLISHER": "1"} | variables).items()}
    with pytest.raises(ValueError, match="KVCAST_VLLM_"):
        plugin.options_of(variables)


def test_the_payloads_are_those_of_vllms_encoder(vllm, create):
    publisher = create(rank=3, endpoint="tcp://127.0.0.1:0", replay_endpoint="tcp://127.0.0.1:0")
    batches = [batch_of(vllm, i) for i in range(40)]
    batches[7].data_parallel_rank = 9
    for batch in batches:
        publisher.publish(batch)
    items = items_of(publisher, 40)
    assert [item.seq for item in items] == list(range(40))
    ranks = [9 if i == 7 else 3 for i in range(40)]
    assert [item.payload for item in items] == [encoded(batch_of(vllm, i), rank) for i, rank in enumerate(ranks)]
    decoder = msgspec.msgpack.Decoder(vllm.KVEventBatch)
    assert [decoder.decode(item.payload) for item in items] == batches


def test_a_batch_that_kvcast_cannot_read_is_published(vllm, create):
    publisher = create()
    for medium in ("GPU", "m" * 5000, "GPU"):
        publisher.publish(batch_of(vllm, events=[vllm.BlockRemoved([1], medium)]))
    items = items_of(publisher, 3)
    expected = encoded(batch_of(vllm, events=[vllm.BlockRemoved([1], "m" * 5000)]))
    assert [item.seq for item in items] == [0, 1, 2] and items[1].payload == expected
    assert len(items[0].decode().events) == 1 and items[1].decode().events == []


def test_a_late_router_gets_a_snapshot(vllm, create):
    """The ring of ten batches has lost the first store, so a replay cannot return this store."""
    publisher = create(buffer_steps=10)
    prompt, other = list(range(64)), list(range(100, 164))
    publisher.publish(batch_of(vllm, events=[store_of(vllm, prompt)]))
    for i in range(50):
        publisher.publish(batch_of(vllm, events=[vllm.BlockRemoved([i + 5], "GPU", 0)]))
    with kvcast.open_router({"sources": [source_of(publisher)]}) as router:
        wait_for(lambda: router.workers()[0]["next_seq"] == 51)
        assert router.find_matches(token_ids=prompt + [1]).tokens == {("e0", 0): 64}
        publisher.publish(batch_of(vllm, events=[store_of(vllm, other)]))  # a store at the root, which proves the hash scheme
        wait_for(lambda: router.workers()[0]["next_seq"] == 52)
        scores = router.find_matches(token_ids=prompt + [1])
        assert router.workers()[0]["state"] == "synced"
    assert scores.tokens == {("e0", 0): 64} and scores.exact == {("e0", 0): True}


def wait_for(look):
    """Calls look until it returns a value that is true. A test waits here for an event of another thread."""
    never_set, limit = threading.Event(), 6000
    while not (value := look()):
        limit -= 1
        assert limit > 0, "the event did not happen"
        never_set.wait(0.01)
    return value


def test_a_batch_that_cannot_be_encoded_is_a_gap(vllm, create, caplog):
    publisher = create()
    publisher.publish(batch_of(vllm, 0))
    publisher.publish(batch_of(vllm, events=[vllm.BlockRemoved([2**64], "GPU")]))  # msgspec has no such integer
    publisher.publish(batch_of(vllm, events=[object()]))
    publisher.publish(batch_of(vllm, 3))
    wait_for(lambda: publisher.counters()["batches"] == 4)
    assert publisher.counters()["encode_errors"] == 2 and caplog.text.count("its sequence number is a gap") == 2
    with kvcast.Subscriber(publisher.endpoint, publisher.replay_endpoint, "kv") as subscriber:
        seqs = []
        while 3 not in seqs:
            item = subscriber.get(WAIT_S)
            if item.payload is not None:
                seqs.append(item.seq)
    assert 1 not in seqs and 2 not in seqs


def test_hashes_only_sends_no_content(vllm, monkeypatch, request):
    monkeypatch.setenv("KVCAST_VLLM_HASHES_ONLY", "1")
    create = request.getfixturevalue("create")
    publisher = create()
    publisher.publish(batch_of(vllm, 0))
    publisher.publish(batch_of(vllm, events=[object()]))  # a gap
    publisher.publish(batch_of(vllm, 0, events=[vllm.BlockRemoved([2**64 - 1, b"x" * 32], "GPU", 0)]))
    wait_for(lambda: publisher.counters()["batches"] == 3)
    assert publisher.counters()["encode_errors"] == 1
    item = items_of(publisher, 1)[0]
    decoded = msgspec.msgpack.Decoder(vllm.KVEventBatch).decode(item.payload)
    original = batch_of(vllm, 0)
    assert decoded.events[1].block_hashes == original.events[1].block_hashes and decoded.events[1].token_ids == []
    assert decoded.events[2] == original.events[2] and decoded.events[0] == original.events[0]
    for secret in SECRETS[1:]:
        assert secret.encode() not in item.payload
    assert decoded.events[1].extra_keys is None and decoded.events[1].lora_name is None


def test_hashes_only_sends_no_batch_that_kvcast_cannot_read(vllm, monkeypatch, request, caplog):
    monkeypatch.setenv("KVCAST_VLLM_HASHES_ONLY", "1")
    publisher = request.getfixturevalue("create")()
    publisher.publish(batch_of(vllm, 0))
    store = store_of(vllm, SECRETS[0])
    store.medium = SECRETS[1] * 100
    publisher.publish(batch_of(vllm, events=[store]))
    publisher.publish(batch_of(vllm, 2))
    wait_for(lambda: publisher.counters()["batches"] == 3)
    assert publisher.counters()["encode_errors"] == 1 and "its sequence number is a gap" in caplog.text
    with kvcast.Subscriber(publisher.endpoint, publisher.replay_endpoint, "kv") as subscriber:
        seqs = []
        while 2 not in seqs:
            item = subscriber.get(WAIT_S)
            if item.payload is not None:
                seqs.append(item.seq)
                assert SECRETS[1].encode() not in item.payload
    assert 1 not in seqs


def source_of(publisher):
    return {"name": "e0", "endpoint": publisher.endpoint, "replay_endpoint": publisher.replay_endpoint, "topic": "kv",
            "groups": FULL, "eagle": False, "reports_hits": False, "offload_rule": "connector"}


def salted(vllm, tokens, salt):
    """A store with tagged extra keys, which vLLM uses since 0.31."""
    hashes = kvcast.compute_block_hashes(tokens, 16, cache_salt=salt, extra_keys="tagged")
    keys = [(salt,)] + [None] * (len(hashes) - 1)
    return vllm.BlockStored(list(hashes), None, tokens, 16, None, "GPU", None, keys, 0, "full_attention")


def answers(router, prompt, **more):
    scores = router.find_matches(token_ids=prompt + [1], **more)
    return scores.tokens.get(("e0", 0)), scores.exact.get(("e0", 0))


def test_with_hashes_only_the_answers_of_a_router_are_exact(vllm, monkeypatch, request):
    """The stores of the publisher prove the hash scheme. The publisher passes this proof to the router."""
    monkeypatch.setenv("KVCAST_VLLM_HASHES_ONLY", "1")
    publisher = request.getfixturevalue("create")()
    prompt, other, third = list(range(64)), list(range(100, 164)), list(range(200, 264))
    with kvcast.open_router({"sources": [source_of(publisher)]}) as router:
        wait_for(lambda: router.workers()[0]["state"] == "synced")
        assert answers(router, prompt) == (0, False)  # no store has shown the scheme
        publisher.publish(batch_of(vllm, events=[store_of(vllm, prompt)]))
        wait_for(lambda: answers(router, prompt) == (64, True))
        assert answers(router, third) == (0, True)
        assert answers(router, other, cache_salt="s")[1] is False  # no store has shown the form of salted keys
        publisher.publish(batch_of(vllm, events=[salted(vllm, other, "s")]))
        wait_for(lambda: answers(router, other, cache_salt="s") == (64, True))
        assert answers(router, other, cache_salt="t") == (0, True)


@pytest.mark.parametrize("seed", [None, "a secret"])
def test_a_restarted_router_is_exact_at_once(vllm, create, monkeypatch, seed):
    if seed is not None:
        monkeypatch.setenv("PYTHONHASHSEED", seed)
    publisher = create(buffer_steps=1)
    prompt = list(range(64))
    store = store_of(vllm, prompt)
    if seed is not None:
        store.block_hashes = list(kvcast.compute_block_hashes(prompt, 16, seed=seed))
    publisher.publish(batch_of(vllm, events=[store]))
    publisher.publish(batch_of(vllm, events=[]))
    wait_for(lambda: publisher.counters()["batches"] == 2)
    source = source_of(publisher) | ({} if seed is None else {"hash_seed": seed})
    for _ in range(2):
        with kvcast.open_router({"sources": [source]}) as router:
            wait_for(lambda: router.workers()[0]["state"] == "synced" and answers(router, prompt)[1])
            assert answers(router, prompt) == (64, True)


def test_curve_refuses_a_client_without_keys(vllm, monkeypatch, tmp_path, request):
    server, client = (write_keys(tmp_path, name) for name in ("server", "client"))
    clients = tmp_path / "clients"
    clients.write_text(f"subscribe,replay,snapshot {client[1]} router\n")
    monkeypatch.setenv("KVCAST_VLLM_CURVE_KEY", server[0])
    monkeypatch.setenv("KVCAST_VLLM_CURVE_CLIENTS", str(clients))
    publisher = request.getfixturevalue("create")()
    publisher.publish(batch_of(vllm, 0))
    with kvcast.Subscriber(curve_key=client[0]) as subscriber:
        subscriber.add("e0", publisher.endpoint, publisher.replay_endpoint, "kv", server_key=server[1])
        assert subscriber.get(WAIT_S).payload == encoded(batch_of(vllm, 0))
        # A client without CURVE gets nothing, although it subscribed before the next batch.
        with kvcast.Subscriber(publisher.endpoint, publisher.replay_endpoint, "kv") as stranger:
            publisher.publish(batch_of(vllm, 1))
            assert subscriber.get(WAIT_S).seq == 1
            assert stranger.get(0.2) is None


def write_keys(folder, name):
    """Returns the path of a secret key, and the public key."""
    zmq = pytest.importorskip("zmq", reason="pyzmq is not installed")
    public, secret = zmq.curve_keypair()
    path = folder / name
    path.write_bytes(secret + b"\n")
    path.chmod(0o600)
    return str(path), public.decode()


def test_ranks_have_ports_of_their_own(vllm, create):
    first = create(endpoint="tcp://127.0.0.1:0", replay_endpoint=None)
    port = int(first.endpoint.rsplit(":", 1)[1])
    first.shutdown()
    publisher = create(rank=2, endpoint=f"tcp://*:{port - 2}", replay_endpoint=None)
    assert publisher.endpoint == f"tcp://0.0.0.0:{port}" and publisher.replay_endpoint == ""
    assert publisher.get_publisher_config().endpoint == f"tcp://*:{port}"
    with pytest.raises(OSError):
        create(rank=1, endpoint=f"tcp://*:{port - 1}", replay_endpoint=None)
    with pytest.raises(ValueError):
        create(rank=1, endpoint="ipc:///tmp/kvcast-plugin-test")


def test_port_zero_is_a_port_of_the_node(create):
    publisher = create(rank=1, endpoint="tcp://*:0", replay_endpoint="tcp://*:0")
    config = publisher.get_publisher_config()
    assert config.endpoint == publisher.endpoint and config.replay_endpoint == publisher.replay_endpoint
    assert config.endpoint.startswith("tcp://127.0.0.1:") and not config.endpoint.endswith(":0")


def test_a_host_or_a_loopback_address_is_connected_to(vllm, create):
    other = create(endpoint="tcp://127.0.0.1:*")
    assert create(endpoint=other.endpoint).endpoint == other.endpoint  # no error: this endpoint is not bound


def test_shutdown_publishes_the_queued_batches(vllm, create):
    publisher = create()
    with kvcast.Subscriber(publisher.endpoint, publisher.replay_endpoint, "kv") as subscriber:
        publisher.publish(batch_of(vllm, 0))
        subscriber.get(WAIT_S)
        for i in range(1, 300):
            publisher.publish(batch_of(vllm, i))
        publisher.shutdown()
        publisher.shutdown()
        seqs = [subscriber.get(WAIT_S).seq for _ in range(299)]
    assert seqs == list(range(1, 300)) and not publisher._thread.is_alive()
    with pytest.raises(RuntimeError, match="closed"):
        publisher.publish(batch_of(vllm, 0))


def test_publish_waits_while_the_queue_is_full(vllm, create, monkeypatch):
    publisher_module = importlib.import_module("kvcast._vllm_publisher")
    events = {}
    run = publisher_module._run

    def paused_run(batches, publisher, *rest):
        events["entered"], events["release"] = threading.Event(), threading.Event()

        class PausedPublisher:
            next_seq = 0

            def publish_payload(self, payload):
                events["entered"].set()
                assert events["release"].wait(WAIT_S)
                publisher.publish_payload(payload)

        events["ready"].set()
        run(batches, PausedPublisher(), *rest)

    events["ready"] = threading.Event()
    monkeypatch.setattr(publisher_module, "_run", paused_run)
    publisher = create(max_queue_size=3)
    assert events["ready"].wait(WAIT_S)
    publisher.publish(batch_of(vllm, 0))
    assert events["entered"].wait(WAIT_S)
    for i in range(1, 4):
        publisher.publish(batch_of(vllm, i))
    waits, wait_for_room = threading.Event(), publisher._wait_for_room
    publisher._wait_for_room = lambda: (waits.set(), wait_for_room())
    thread = threading.Thread(target=publisher.publish, args=(batch_of(vllm, 4),))
    thread.start()
    assert waits.wait(WAIT_S) and thread.is_alive() and publisher._queue.qsize() == 3
    events["release"].set()
    thread.join(WAIT_S)
    assert [item.seq for item in items_of(publisher, 5)] == list(range(5))


def test_a_child_process_cannot_use_the_publisher(vllm, create):
    publisher = create()
    publisher.publish(batch_of(vllm, 0))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            publisher.publish(batch_of(vllm, 1))
            message = "published"
        except RuntimeError as error:
            message = str(error)
        publisher.shutdown()
        os.write(write, message.encode())
        del publisher
        os._exit(7)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        message = pipe.read().decode()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert message == f"the publisher belongs to the process {os.getpid()}"
    publisher.publish(batch_of(vllm, 1))
    assert [item.seq for item in items_of(publisher, 2)] == [0, 1]


ENDS = {  # the last lines of a process that has published a batch
    "without a shutdown": "",
    "after the last reference": "del publisher",
    "with a child": "import os; child = os.fork(); code = child and os.waitpid(child, 0)[1]; sys.exit(code)",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_process_ends(vllm, end):
    lines = ["import sys, kvcast.vllm", "kvcast.vllm.register()", "from vllm.distributed import kv_events",
             "from vllm.config.kv_events import KVEventsConfig",
             "config = KVEventsConfig(True, 'zmq', 'tcp://127.0.0.1:*', 'tcp://127.0.0.1:*')",
             "publisher = kv_events.EventPublisherFactory.create(config)",
             "publisher.publish(kv_events.KVEventBatch(ts=1.0, events=[]))", ENDS[end]]
    package = pathlib.Path(kvcast.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(STAND_IN), str(package)])}
    # CPython 3.12 warns of a fork in a process with threads.
    ended = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", "\n".join(lines)], env=environment,
                           timeout=WAIT_S, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_threads_publish(vllm, create):
    publisher = create()
    in_threads(lambda i: [publisher.publish(batch_of(vllm, i)) for _ in range(50)], 4)
    assert [item.seq for item in items_of(publisher, 200)] == list(range(200))


def test_inproc_endpoints_use_the_publisher_of_vllm(vllm, create, caplog):
    assert type(create(endpoint="inproc://events")) is vllm.ZmqEventPublisher
    assert "pyzmq" in caplog.text


def test_an_untested_release_works_and_its_log_line_says_untested(vllm, create, caplog):
    sys.modules["vllm"].__version__ = "0.99.0"
    vllm.EventPublisherFactory._registry["zmq"] = vllm.ZmqEventPublisher
    with caplog.at_level(logging.INFO, "vllm.kvcast"):
        plugin.register()
        create()
    assert [line for line in caplog.messages if "0.99.0, which is not tested" in line] == caplog.messages


def break_factory(vllm):
    del vllm.EventPublisherFactory._registry["zmq"]


def break_options(vllm):
    class Other(vllm.ZmqEventPublisher):
        def __init__(self, data_parallel_rank, endpoint, compression):
            pass

    vllm.ZmqEventPublisher = Other


def break_methods(vllm):
    vllm.EventPublisher.__abstractmethods__ = frozenset({"publish", "shutdown", "flush"})


def break_fields(vllm):
    class BlockRemoved(vllm.KVCacheEvent):
        block_hashes: list[int]
        medium: str
        copies: int = 1

    BlockRemoved.__module__ = vllm.__name__
    vllm.BlockRemoved = BlockRemoved


def break_kinds(vllm):
    class BlockMoved(vllm.KVCacheEvent):
        pass

    BlockMoved.__module__ = vllm.__name__
    vllm.BlockMoved = BlockMoved


def break_binding(vllm):
    vllm.ZmqEventPublisher._is_bind_endpoint = staticmethod(lambda endpoint: True)


def break_ranks(vllm):
    vllm.ZmqEventPublisher.offset_endpoint_port = staticmethod(lambda endpoint, rank: endpoint)


def break_module(vllm):
    del vllm.KVEventBatch


BREAKS = [break_factory, break_options, break_methods, break_fields, break_kinds, break_binding, break_ranks, break_module]


@pytest.mark.parametrize("change", BREAKS)
def test_a_release_that_differs_is_not_changed(vllm, monkeypatch, caplog, change):
    change(vllm)
    sys.modules["vllm"].__version__ = "0.99.0"
    before = dict(vllm.EventPublisherFactory._registry)
    plugin.register()
    assert vllm.EventPublisherFactory._registry == before
    assert len(caplog.messages) == 1 and "vLLM 0.99.0 does not fit" in caplog.text and "\n" not in caplog.messages[0]
    # With hashes-only, vLLM's own publisher must not be used.
    monkeypatch.setenv("KVCAST_VLLM_HASHES_ONLY", "1")
    with pytest.raises(RuntimeError, match="0.99.0 does not fit"):
        plugin.register()
    assert vllm.EventPublisherFactory._registry == before


def test_a_second_registration_has_no_effect(vllm, create):
    before = vllm.EventPublisherFactory._registry["zmq"]
    plugin.register()
    assert vllm.EventPublisherFactory._registry["zmq"] is before
    assert isinstance(create(), plugin.KvcastEventPublisher)


def test_another_plug_in_has_the_name(vllm, caplog):
    vllm.EventPublisherFactory._registry["zmq"] = lambda **more: None
    plugin.register()
    assert "another plug-in" in caplog.text
