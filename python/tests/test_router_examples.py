"""The routers of other hosts in examples/: the vLLM production stack and Ray Serve. The hosts are stand-ins."""
import asyncio
import json
import pathlib
import sys
import time
import urllib.request
from types import SimpleNamespace
from unittest import mock

import pytest
from conftest import BLOCK, FULL, in_threads, stored

import kvcast

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples"))
with mock.patch.dict(sys.modules, {"vllm_router": None, "ray": None}):  # the classes have the base `object`
    import production_stack_router
    import ray_serve_router

WAIT_S = 60
MODEL, ADAPTER, SALT = "model", "adapter", "salt"
URLS = [f"http://10.0.0.{i}:8000" for i in range(3)]
WITH_ADAPTER, PLAIN, WITH_SALT = URLS  # the workers that hold the prompt; only PLAIN has no extra keys
OTHERS = [WITH_ADAPTER, WITH_SALT]
NEW = "http://10.0.0.9:8000"  # a worker that kvcast does not know


async def tokenize(body):
    """A prompt of these tests is a list of token ids, or a list of words, which has no ids."""
    await asyncio.sleep(0)
    return [int(word) for word in (body["prompt"] if isinstance(body, dict) else body.prompt)]


def stored_with(tokens, keys, **more):
    """The store of a prompt whose hashes have `keys`. `more`: the members of the event that name the keys."""
    return kvcast.BlockStored(kvcast.compute_block_hashes(tokens, BLOCK, **keys), tokens, BLOCK, group_idx=0,
                              kv_cache_spec_kind="full_attention", **more)


@pytest.fixture
def config(prompt):
    """The configuration of a router of three workers. The store of each worker is published."""
    stores = {PLAIN: stored(prompt), WITH_ADAPTER: stored_with(prompt, {"lora_name": ADAPTER}, lora_name=ADAPTER),
              WITH_SALT: stored_with(prompt, {"cache_salt": SALT}, extra_keys=[[SALT], None, None, None])}
    publishers = {url: kvcast.KvEventPublisher("tcp://127.0.0.1:0", "tcp://127.0.0.1:0") for url in URLS}
    for url, publisher in publishers.items():
        publisher.publish([stores[url]])
    yield {"sources": [{"name": url, "endpoint": publisher.endpoint, "replay_endpoint": publisher.replay_endpoint,
                        "model": MODEL, "groups": FULL, "eagle": False, "reports_hits": False}
                       for url, publisher in publishers.items()]}
    for publisher in publishers.values():
        publisher.close()


def wait(router):
    """Waits until the router has the store of each worker. A heartbeat may follow at any time."""
    end = time.monotonic() + WAIT_S
    while any(worker["state"] != "synced" or worker["next_seq"] < 1 for worker in router.workers()):
        assert time.monotonic() < end, router.workers()
        time.sleep(0.001)


class Stack:
    """The calls of the production stack."""

    def __init__(self, config):
        self.kvcast = kvcast.open_router(config)
        self.router = production_stack_router.KvcastRouter(self.kvcast, tokenize)

    def request(self, body, **keys):
        return SimpleNamespace(body={"model": keys.get("lora") or MODEL, **body}, state=SimpleNamespace())

    async def choose(self, request, urls=URLS, loads=None):
        info = {MODEL: SimpleNamespace(parent=None), ADAPTER: SimpleNamespace(parent=MODEL)}
        endpoints = [SimpleNamespace(url=url, model_info=info) for url in urls]
        stats = {url: SimpleNamespace(in_prefill_requests=1, in_decoding_requests=load - 1)
                 for url, load in (loads or {}).items()}
        assert self.router.pre_request(request, b"", request.body) is None
        return await self.router.route_request(endpoints, {}, stats, request, request.body)

    def finish(self, request):
        self.router.post_request(request, b"answer")

    def request_id(self, request):
        return request.state.kvcast_request_id


class Serve:
    """The calls of Ray Serve. `loads` are the queue lengths of replicas. Serve itself compares them."""

    def __init__(self, config):
        self.router = ray_serve_router.KvcastRequestRouter()
        self.router.initialize_state(config, f"{__name__}:tokenize", MODEL)
        self.kvcast, self.ids = self.router.router, iter(range(10**6))

    def request(self, body, lora=""):
        metadata = SimpleNamespace(internal_request_id=f"id-{next(self.ids)}", multiplexed_model_id=lora)
        return SimpleNamespace(args=[SimpleNamespace(other=1)], kwargs={"body": SimpleNamespace(**body)},
                               metadata=metadata, routing_context=SimpleNamespace(should_backoff=False))

    async def ranks(self, request, urls=URLS):
        replicas = [SimpleNamespace(replica_id=f"replica of {url}", replica_metadata={"kvcast_source": url})
                    for url in urls]
        ranks = await self.router.choose_replicas(replicas, request)
        ranks = [[replica.replica_metadata["kvcast_source"] for replica in rank] for rank in ranks]
        assert sorted(sum(ranks, [])) == sorted(urls)
        return ranks

    async def choose(self, request, urls=URLS, loads=None):
        best = min((await self.ranks(request, urls))[0], key=lambda url: (loads or {}).get(url, 0))
        self.router.on_request_routed(request, f"replica of {best}", None)
        return best

    def finish(self, request):
        self.router.on_request_completed("replica", self.request_id(request))

    def request_id(self, request):
        return request.metadata.internal_request_id


@pytest.fixture(params=[Stack, Serve])
def host(request, config):
    made = request.param(config)
    with made.kvcast:
        wait(made.kvcast)
        yield made


@pytest.fixture
def stack(config):
    made = Stack(config)
    with made.kvcast:
        wait(made.kvcast)
        yield made


@pytest.fixture
def serve(config):
    made = Serve(config)
    with made.kvcast:
        wait(made.kvcast)
        yield made


def state(host):
    with urllib.request.urlopen(f"http://127.0.0.1:{host.kvcast.http_port}/v1/state") as reply:
        return json.load(reply)


def bookings(host):
    return state(host)["routing"]["bookings"]


def loaded(host):
    """The workers with a load."""
    return [worker["name"] for worker in state(host)["workers"] if worker["load"]["active_prefill_tokens"]]


def chosen(host, body, urls=URLS, loads=None, **keys):
    """Returns the worker that is chosen for a request. The request ends at once."""
    request = host.request(body, **keys)
    url = asyncio.run(host.choose(request, urls, loads))
    host.finish(request)
    return url


def test_the_worker_that_holds_the_prompt_is_chosen(host, prompt):
    for urls in (URLS, URLS[::-1]):
        assert chosen(host, {"prompt": prompt + [1]}, urls) == PLAIN


def test_adapters_and_salts_select_the_worker_with_their_blocks(host, prompt, caplog):
    assert chosen(host, {"prompt": prompt + [1]}, lora=ADAPTER) == WITH_ADAPTER
    assert chosen(host, {"prompt": prompt + [1], "cache_salt": SALT}) == WITH_SALT
    assert caplog.records == []


def test_a_worker_that_the_host_does_not_list_is_never_chosen(host, prompt, caplog):
    for urls in (OTHERS, OTHERS[:1], OTHERS[1:]):
        for _ in range(10):
            assert chosen(host, {"prompt": prompt + [1]}, urls) in urls
    assert caplog.records == []


def test_without_a_known_worker_the_least_loaded_one_is_chosen(host, prompt, caplog):
    urls = ["http://10.0.0.8:8000", NEW]
    assert chosen(host, {"prompt": prompt + [1]}, urls, {urls[0]: 2, NEW: 1}) == NEW
    assert chosen(host, {"prompt": prompt + [1]}, urls, {urls[0]: 1, NEW: 2}) == urls[0]
    assert caplog.records == [] and bookings(host) == 0


def test_the_end_of_a_request_ends_its_booking(host, prompt):
    requests = [host.request({"prompt": prompt + [i]}) for i in range(3)]
    for request in requests:
        asyncio.run(host.choose(request))
    for left, request in zip((2, 1, 0), requests):
        host.finish(request)
        assert bookings(host) == left


def test_the_end_of_a_request_without_a_booking_has_no_effect(host, prompt):
    host.finish(host.request({"prompt": prompt}))
    request = host.request({"prompt": prompt})
    asyncio.run(host.choose(request))
    host.kvcast.feedback(request_id=host.request_id(request), event="finished")
    host.finish(request)
    assert bookings(host) == 0


def test_a_body_without_a_prompt_goes_to_the_least_loaded_worker(host, caplog):
    for body in ({"input": "text"}, {"prompt": []}, {"messages": []}):
        assert chosen(host, body, URLS, {PLAIN: 5, WITH_ADAPTER: 2, WITH_SALT: 4}) == WITH_ADAPTER
    assert caplog.records == [] and bookings(host) == 0


@pytest.mark.parametrize("prompt_of, model", [(lambda prompt: ["word"], MODEL), (lambda prompt: [-1], MODEL),
                                              (lambda prompt: prompt, "unknown")])
def test_after_an_error_the_least_loaded_worker_is_chosen(host, prompt, caplog, prompt_of, model):
    if isinstance(host, Serve):
        host.router.model = model
    body = {"prompt": prompt_of(prompt), "model": model}
    assert chosen(host, body, URLS, {PLAIN: 5, WITH_ADAPTER: 2, WITH_SALT: 4}) == WITH_ADAPTER
    assert [record.message for record in caplog.records] == ["kvcast cannot route a request"] and bookings(host) == 0


def test_a_closed_router_fails_no_request(host, prompt):
    request = host.request({"prompt": prompt + [1]})
    asyncio.run(host.choose(request))
    host.kvcast.close()
    host.finish(request)
    assert chosen(host, {"prompt": prompt + [1]}, URLS, {PLAIN: 5, WITH_ADAPTER: 2, WITH_SALT: 4}) == WITH_ADAPTER


def test_requests_at_once_share_the_workers(host):
    requests = [host.request({"prompt": list(range(5000 * i, 5000 * i + 4000))}) for i in range(9)]

    async def all_at_once():
        return await asyncio.gather(*(host.choose(request) for request in requests))

    urls = asyncio.run(all_at_once())
    assert set(urls) == set(URLS) and bookings(host) == 9
    for request in requests:
        host.finish(request)
    assert bookings(host) == 0


def test_threads_route_and_finish_requests(host, prompt):
    def work(i):
        urls = (URLS, OTHERS)[i % 2]
        for n in range(25):
            request = host.request({"prompt": prompt + [i, n]})
            assert asyncio.run(host.choose(request, urls)) in urls
            host.finish(request)

    in_threads(work)
    assert bookings(host) == 0


def test_the_stack_sends_requests_to_an_unknown_endpoint_by_its_load(stack, prompt):
    urls = [*URLS, NEW]
    assert chosen(stack, {"prompt": prompt + [1]}, urls, dict.fromkeys(URLS, 1) | {NEW: 1}) == PLAIN
    assert chosen(stack, {"prompt": prompt + [1]}, urls, dict.fromkeys(URLS, 2) | {NEW: 1}) == NEW
    assert chosen(stack, {"prompt": prompt + [1]}, urls, {PLAIN: 9, NEW: 1}) == PLAIN


def test_the_stack_routes_a_request_again_after_an_endpoint_failed(stack, prompt):
    request = stack.request({"prompt": prompt + [1]})
    assert asyncio.run(stack.choose(request)) == PLAIN and loaded(stack) == [PLAIN]
    other = asyncio.run(stack.choose(request, OTHERS))
    assert other in OTHERS and loaded(stack) == [other] and bookings(stack) == 1
    assert asyncio.run(stack.choose(request, [NEW])) == NEW and bookings(stack) == 0


def test_the_stack_routes_audio_without_a_body(stack):
    endpoints = [SimpleNamespace(url=url) for url in URLS]
    busy = SimpleNamespace(in_prefill_requests=0, in_decoding_requests=1)
    assert stack.router.route_request(endpoints, {}, {URLS[0]: busy, URLS[2]: busy}, stack.request({})) == URLS[1]


def test_serve_gets_the_other_candidates_as_second_rank(serve, prompt):
    request = serve.request({"prompt": prompt + [1]})
    assert asyncio.run(serve.ranks(request, [*URLS, NEW])) == [[PLAIN], [WITH_ADAPTER, WITH_SALT, NEW]]
    assert request.routing_context.should_backoff
    assert asyncio.run(serve.router.choose_replicas(["r"], None)) == [["r"]]


def test_the_load_follows_the_replica_that_takes_the_request(serve, prompt):
    request = serve.request({"prompt": prompt + [1]})
    asyncio.run(serve.ranks(request, [*URLS, NEW]))
    assert loaded(serve) == [PLAIN]
    for url, workers in ((WITH_SALT, [WITH_SALT]), (PLAIN, [PLAIN]), (NEW, [])):
        serve.router.on_request_routed(request, f"replica of {url}", None)
        assert loaded(serve) == workers and bookings(serve) == len(workers)
