"""open_router: the service in this process."""
import json
import time
import urllib.request

import pytest
from conftest import FULL, in_threads, stored

import kvcast

KEY = ("e0", 0)
WAIT_S = 60


def config_of(publisher):
    return {"sources": [{"name": "e0", "endpoint": publisher.endpoint, "replay_endpoint": publisher.replay_endpoint,
                         "groups": FULL, "eagle": False, "reports_hits": False, "offload_rule": "connector"}]}


@pytest.fixture
def publisher(prompt):
    with kvcast.KvEventPublisher("tcp://127.0.0.1:0", "tcp://127.0.0.1:0") as made:
        made.publish([stored(prompt)])
        yield made


@pytest.fixture
def router(publisher):
    with kvcast.open_router(config_of(publisher)) as made:
        wait(made, publisher)
        yield made


def wait(router, publisher):
    """Waits until the router has every batch of the publisher. A heartbeat may increase next_seq further."""
    end, published = time.monotonic() + WAIT_S, publisher.next_seq
    while router.workers()[0]["state"] != "synced" or router.workers()[0]["next_seq"] < published:
        assert time.monotonic() < end, router.workers()
        time.sleep(0.001)


def test_answers_equal_those_over_http_and_those_of_an_index(router, prompt):
    scores = router.find_matches(token_ids=prompt + [1])
    assert scores.scores == {KEY: 4} and scores.exact == {KEY: True} and scores.tokens == {KEY: 64}
    assert router.find_matches(kvcast.compute_block_hashes(prompt)).tokens == {KEY: 64}
    request = urllib.request.Request(f"http://127.0.0.1:{router.http_port}/v1/query",
                                     json.dumps({"tokens": prompt + [1]}).encode())
    with urllib.request.urlopen(request) as reply:
        worker = json.load(reply)["workers"][0]
    assert (worker["reusable_tokens"], worker["exact"], worker["name"]) == (64, True, "e0")
    assert (router.admin_port, router.relay_endpoint) == (0, "")


def test_a_route_is_booked_until_feedback_reports_its_end(router, prompt):
    decision = router.route(prompt + [1], request_id="r")
    assert (decision["worker"], decision["request_id"], decision["prompt_tokens"]) == ("e0", "r", 65)
    router.feedback(request_id="r", event="admitted", reused_tokens=64)
    router.feedback(request_id="r", event="first_token")
    router.feedback(request_id="r", event="finished")
    router.feedback(worker="e0", event="load", queued_requests=3)
    with pytest.raises(kvcast.NotFoundError):
        router.feedback(request_id="r", event="finished")
    assert router.route(hashes=kvcast.compute_block_hashes(prompt), book=False, temperature=1.0,
                        ttft_slo_ms=1000)["worker"] == "e0"


def test_a_configuration_may_be_a_dict_a_text_or_a_path(tmp_path):
    path = tmp_path / "router.json"
    path.write_text('{"sources": []}')
    for config in ({"sources": []}, '{"sources": []}', path):
        with kvcast.open_router(config) as router:
            assert router.http_port > 0 and router.workers() == []
            with pytest.raises(kvcast.UnavailableError):
                router.route([1, 2, 3])


def test_bad_configurations_raise(router, tmp_path):
    taken = f"127.0.0.1:{router.http_port}"
    for config, error in [
        ({"unknown": 1}, ValueError), ("{", ValueError), ("[]", ValueError), (5, TypeError), (None, TypeError),
        ({"sources": [{"name": "x"}]}, ValueError), ({"sources": [{}, {}]}, ValueError), ({"x": b"y"}, TypeError),
        ({"http": taken}, kvcast.UnavailableError), (tmp_path / "missing.json", OSError), ({"http": "0.0.0.0:0"}, ValueError),
    ]:
        with pytest.raises(error):
            kvcast.open_router(config)


def test_bad_calls_raise(router):
    for bad, error in [
        (lambda: router.find_matches(), ValueError), (lambda: router.find_matches(token_ids=[-1]), ValueError),
        (lambda: router.find_matches(token_ids=[1], model="m"), LookupError),
        (lambda: router.find_matches(token_ids=[1], workers=["x"]), ValueError),
        (lambda: router.find_matches(token_ids=[1], workers=[]), ValueError), (lambda: router.route([1], workers=[]), ValueError),
        (lambda: router.route(), ValueError), (lambda: router.route([2**63]), ValueError), (lambda: router.route("x"), TypeError),
        (lambda: router.route([1], temperature=-1), ValueError), (lambda: router.route([1], temperature=float("nan")), ValueError),
        (lambda: router.route([1], ttft_slo_ms=-1), ValueError), (lambda: router.route([1], request_id=5), TypeError),
        (lambda: router.feedback(), ValueError), (lambda: router.feedback(event="x"), ValueError),
        (lambda: router.feedback(request_id="r", event="admitted", reused_tokens=-1), ValueError),
        (lambda: router.feedback(request_id=b"x"), TypeError),
        (lambda: router.feedback(request_id="r", event="admitted", reused_tokens=2**63), ValueError),
    ]:
        with pytest.raises(error):
            bad()


def test_texts_that_are_too_long_are_refused(router, indexer):
    most, longer = "x" * 1024, "x" * 1025
    assert router.route([1] * 32, request_id=most)["request_id"] == most
    router.feedback(request_id=most, event="finished")
    for bad in [
        lambda: router.route([1] * 32, request_id=longer), lambda: router.route([1] * 32, model=longer),
        lambda: router.route([1] * 32, workers=["e0", longer]), lambda: router.find_matches(token_ids=[1], model=longer),
        lambda: router.find_matches(token_ids=[1], workers=[longer]), lambda: indexer.find_matches(token_ids=[1], model=longer),
    ]:
        with pytest.raises(kvcast.InvalidArgumentError, match="longer than 1024 bytes"):
            bad()


def test_a_closed_router_raises_for_every_call(router):
    router.close()
    router.close()
    assert router.closed
    for call in [lambda: router.find_matches(token_ids=[1]), lambda: router.route([1]), lambda: router.workers(),
                 lambda: router.feedback(worker="e0", event="load", queued_requests=1), lambda: router.http_port,
                 lambda: router.admin_port, lambda: router.relay_endpoint]:
        with pytest.raises(kvcast.ClosedError):
            call()


def test_threads_use_and_close_a_router(publisher, prompt):
    router = kvcast.open_router(config_of(publisher))
    wait(router, publisher)

    def work(i):
        answers = 0
        try:
            for n in range(50):
                assert router.find_matches(token_ids=prompt + [1]).tokens == {KEY: 64}
                router.route(prompt, request_id=f"{i}-{n}")
                router.feedback(request_id=f"{i}-{n}", event="finished")
                router.workers()
                answers += 1
            if i == 0:
                router.close()
        except kvcast.ClosedError:
            assert i != 0
        return answers

    assert in_threads(work)[0] == 50
