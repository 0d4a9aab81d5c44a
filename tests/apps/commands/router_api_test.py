#!/usr/bin/env python3
"""Tests the program `kvcast router` on every route, with good requests, bad requests and misbehaving
clients. The test checks the JSON replies against schemas/openapi.json, except replies to an unknown path or
method, and one large dump.
usage: router_api_test.py KVCAST OPENAPI_JSON
# SPDX-License-Identifier: Apache-2.0
"""
import atexit
import http.client
import http.server
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import jsonschema
import msgpack
import zmq

KVCAST, OPENAPI = sys.argv[1], sys.argv[2]
with open(KVCAST, "rb") as program:
    # ThreadSanitizer needs four extra bytes for every byte that a program uses.
    LITTLE_KB = (64 << 10) * (5 if b"__tsan_init" in program.read() else 1)
failures = 0
covered = set()  # (path, method, status)


def nullable(schema):
    """Translates OpenAPI 3.0's `nullable` to JSON Schema."""
    if isinstance(schema, list):
        return [nullable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: nullable(value) for key, value in schema.items()}
    if out.pop("nullable", False):
        return {"anyOf": [out, {"type": "null"}]}
    return out


with open(OPENAPI, encoding="utf-8") as file:
    SPEC = nullable(json.load(file))


def check(claim, condition, detail=""):
    global failures
    if not condition:
        failures += 1
        print(f"FAILED: {claim} {detail}")


class Engine:
    """A publisher of batches with a replay socket. The replay proves to the router that no batch is missing."""

    def __init__(self):
        context = zmq.Context.instance()
        self.pub, self.router = context.socket(zmq.PUB), context.socket(zmq.ROUTER)
        self.endpoint = f"tcp://127.0.0.1:{self.pub.bind_to_random_port('tcp://127.0.0.1')}"
        self.replay = f"tcp://127.0.0.1:{self.router.bind_to_random_port('tcp://127.0.0.1')}"
        self.log = []

    def publish(self, *events):
        payload = msgpack.packb([time.time(), list(events), 0])
        self.log.append(payload)
        self.pub.send_multipart([b"kv", (len(self.log) - 1).to_bytes(8, "big"), payload])

    def serve(self):
        while self.router.poll(0):
            peer, _, start = self.router.recv_multipart()
            for seq in range(int.from_bytes(start, "big"), len(self.log)):
                self.router.send_multipart([peer, b"", b"kv", seq.to_bytes(8, "big"), self.log[seq]])
            self.router.send_multipart([peer, b"", b"", b"\xff" * 8, b""])


def stored(hashes, group, kind, medium="GPU", **more):
    event = {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None,
             "token_ids": list(range(16 * len(hashes))), "block_size": 16, "lora_id": None,
             "medium": medium, "lora_name": None, "group_idx": group, "kv_cache_spec_kind": kind}
    return {**event, **more}


class Router:
    def __init__(self, *flags):
        self.process = subprocess.Popen([KVCAST, "router", "--http", "127.0.0.1:0", *flags],
                                        stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # an exception must leave no router, or ctest waits for it
        for line in self.process.stderr:
            if match := re.search(r"http_listening .*http://[^:]+:(\d+)", line):
                break
        self.port = int(match.group(1))

    def call(self, method, target, body=None, validate=True, token=None):
        """Returns (status, JSON or text). Checks the reply against the OpenAPI document."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if isinstance(body, (bytes, str, type(None))) else json.dumps(body)
        connection.request(method, target, data, {"Authorization": f"Bearer {token}"} if token else {})
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        path = target.split("?")[0]
        if "json" not in reply.getheader("Content-Type"):
            covered.add((path, method.lower(), reply.status))
            return reply.status, text
        value = json.loads(text)
        if validate:
            described = SPEC["paths"].get(path, {}).get(method.lower(), {"responses": {}})
            response = described["responses"].get(str(reply.status))
            check(f"{method} {path} {reply.status} is described", response is not None, text[:200])
            if response:
                covered.add((path, method.lower(), reply.status))
                schema = response["content"]["application/json"]["schema"]
                try:
                    jsonschema.validate(value, {**schema, "components": SPEC["components"]})
                except jsonschema.ValidationError as error:
                    check(f"{method} {path} {reply.status} is as described", False, error.message)
        return reply.status, value

    def memory_kb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=20)


def until(claim, condition, *engines):
    deadline = time.time() + 20
    while time.time() < deadline:
        for engine in engines:
            engine.serve()
        if condition():
            return
        time.sleep(0.01)
    check(claim, False, "did not become true within 20 s")


one, two = Engine(), Engine()
one.publish(stored([1, 2, 3, 4], 0, "full_attention"),
            stored([2, 3], 1, "sliding_window", kv_cache_spec_sliding_window=32))
one.publish(stored([4], 0, "full_attention", "CPU"))
two.publish(stored([1], 0, "full_attention"))
router = Router("--source", f"one={one.endpoint},{one.replay},model=m,reports_hits=false")

# Sources: from flags, over kvcast's own API, and over the indexer API (router/service/api/indexer_api.h).
status, reply = router.call("POST", "/v1/sources", {"name": "two", "endpoint": two.endpoint,
                                                    "replay_endpoint": two.replay, "model": "m"})
check("a source is added", status == 201 and reply["name"] == "two", reply)
status, reply = router.call("POST", "/v1/sources", {"name": "two", "endpoint": two.endpoint})
check("a second source with the same name is refused", status == 409 and "two" in reply["error"], reply)
status, reply = router.call("POST", "/register", {
    "instance_id": 7, "endpoint": one.endpoint, "replay_endpoint": one.replay, "model_name": "f",
    "block_size": 16, "dp_rank": 1})
check("indexer API: registration", status == 201, reply)
check("readyz answers while a source waits", router.call("GET", "/readyz")[0] in (200, 503))
until("all sources are synced", lambda: router.call("GET", "/readyz")[0] == 200, one, two)
status, reply = router.call("GET", "/v1/sources")
check("sources are listed", [s["name"] for s in reply["sources"]] == ["one", "two", "default/f/7/1"],
      reply)
status, reply = router.call("GET", "/workers?model_name=f")
check("indexer API: workers", len(reply) == 1 and reply[0]["instance_id"] == 7 and
      reply[0]["endpoints"] == {"1": one.endpoint} and reply[0]["status"] == "active", reply)

# Queries.
hashes = {"hashes": [1, 2, 3, 4], "model": "m"}
status, reply = router.call("POST", "/v1/query", hashes)
check("every worker of the model answers", [w["name"] for w in reply["workers"]] == ["one", "two"])
check("a prefix counts only if all groups serve it",
      [w["reusable_tokens"] for w in reply["workers"]] == [48, 16], reply)
check("the answer names the limiting group", reply["workers"][0]["limiting_group"] == 1, reply)
status, reply = router.call("POST", "/query_by_hash", {"block_hashes": [1, 2, 3, 4], "model_name": "f"})
check("indexer API: scores of a query by hash", reply["scores"] == {"7": {"1": 48}} and
      reply["instances"]["7"]["longest_matched"] == 48, reply)
status, reply = router.call("POST", "/query", {"token_ids": list(range(64)), "model_name": "f"})
check("indexer API: query by tokens", status == 200 and "7" in reply["instances"], reply)

# All held blocks, as events.
status, dump = router.call("GET", "/dump?model_name=m")
held = sorted((e["worker_id"], e["medium"], e["group_idx"], sorted(
    b["block_hash"] for b in e["event"]["data"]["stored"]["blocks"])) for e in dump["m:default"]["events"])
check("indexer API: dump of one model", list(dump) == ["m:default"] and dump["m:default"]["block_size"] == 16 and
      held == [("one", "CPU", 0, [4]), ("one", "GPU", 0, [1, 2, 3, 4]), ("one", "GPU", 1, [2, 3]),
               ("two", "GPU", 0, [1])], dump)
check("a dump of all models", list(router.call("GET", "/dump")[1]) == ["f:default", "m:default"])
check("a dump of an unknown model is empty", router.call("GET", "/dump?model_name=none")[1] == {})

# A client does not read its dump. The router refuses a second dump. Other requests do not wait.
crowd = Engine()
for first in range(0, 240000, 60000):
    crowd.publish(stored(list(range(first, first + 60000)), 0, "full_attention", "CPU", token_ids=[], block_size=0))
router.call("POST", "/v1/sources", {"name": "crowd", "endpoint": crowd.endpoint, "replay_endpoint": crowd.replay,
                                    "model": "c"})
until("the router has all blocks of the source crowd",
      lambda: [w["residencies"] for w in router.call("GET", "/v1/state")[1]["workers"]
               if w["name"] == "crowd"] == [240000], one, two, crowd)
before = router.memory_kb()
stalled = socket.socket()
stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
stalled.connect(("127.0.0.1", router.port))
stalled.send(b"GET /dump HTTP/1.1\r\nHost: localhost\r\n\r\n")
until("a second dump is refused", lambda: router.call("GET", "/dump?model_name=none")[0] == 503)
check("a query beside a stalled dump", router.call("POST", "/v1/query", hashes)[0] == 200)
check("the state beside a stalled dump", router.call("GET", "/v1/state")[0] == 200)
check("a stalled dump takes little memory", router.memory_kb() - before < LITTLE_KB, router.memory_kb() - before)
stalled.close()
until("a dump ends when its client disconnects", lambda: router.call("GET", "/dump?model_name=none")[0] == 200)
count = sum(len(e["event"]["data"]["stored"]["blocks"])
            for e in router.call("GET", "/dump?model_name=c", validate=False)[1]["c:default"]["events"])
check("a large dump contains all blocks", count == 240000, count)
check("the source crowd is removed", router.call("DELETE", "/v1/sources?name=crowd")[0] == 200)

# Decisions.
status, decision = router.call("POST", "/v1/route", {**hashes, "request_id": "r1"})
check("the worker that holds more blocks is chosen", decision["worker"] == "one" and decision["request_id"] == "r1" and
      "48 of 65 tokens" in decision["reason"] and len(decision["candidates"]) == 2, decision)
status, reply = router.call("POST", "/v1/route", {**hashes, "workers": ["two"], "book": False})
check("only an allowed worker is chosen", reply["worker"] == "two", reply)
check("the reply to a request without a limit has no keeps_slo", "keeps_slo" not in reply, reply)
check("the reply has no prompt for vLLM unless it is asked for", "vllm_prompt" not in reply, reply)
status, reply = router.call("POST", "/v1/route", {"model": "m", "tokens": list(range(50)), "vllm_checkpoint_token": 99,
                                                 "book": False})
check("without a hint there is no prompt for vLLM", status == 200 and reply["vllm_prompt"] is None, reply)
for limit, kept in [(1e6, True), (0.001, False)]:
    status, reply = router.call("POST", "/v1/route", {**hashes, "ttft_slo_ms": limit, "book": False})
    check(f"a limit of {limit} ms", status == 200 and reply["keeps_slo"] is kept and
          all(c["predicted_ttft_ms"] > limit or kept for c in reply["candidates"]), reply)
loads = {w["name"]: w["load"] for w in router.call("GET", "/v1/state")[1]["workers"]}
check("the decision is booked", loads["one"]["active_prefill_tokens"] == 65 - 48, loads)
for event, code in [({"event": "admitted", "reused_tokens": 48}, 200), ({"event": "first_token"}, 200),
                    ({"event": "finished"}, 200), ({"event": "finished"}, 404)]:
    status, reply = router.call("POST", "/v1/feedback", {**event, "request_id": "r1"})
    check(f"feedback {event}", status == code, reply)
check("feedback with the length of a queue", router.call("POST", "/v1/feedback", {"event": "load", "worker": "one",
                                                      "queued_requests": 3})[0] == 200)
for _ in range(3):
    status, reply = router.call("POST", "/v1/load_rates", {"worker": "one", "loads": [
        {"tier": "CPU", "bytes": 2e9, "seconds": 1}, {"tier": "STORAGE", "bytes_total": 9, "seconds_total": 1}]})
    check("a report of loads", status == 200 and (reply["taken"], reply["ignored"]) == (1, 1), reply)

# examples/report_loads.py. The first page has counters of two ranks, and counters with the names of older
# releases. The second page has only the names of older releases.
PAGE = '''# TYPE vllm:kv_offload_load_bytes_total counter
vllm:kv_offload_load_bytes_total{{engine="0",model_name="a \\"m\\", b"}} {0}e+09
vllm:kv_offload_load_bytes_total{{engine="1",model_name="m"}} 7e+15
vllm:kv_offload_load_bytes_created{{engine="0",model_name="m"}} 1.79e+09
vllm:kv_offload_load_time_total{{engine="0",model_name="m"}} {1}
vllm:kv_offload_load_time_total{{engine="1",model_name="m"}} 1
vllm:kv_offload_total_bytes_total{{engine="0",transfer_type="CPU_to_GPU"}} 1
vllm:kv_offload_total_time_total{{engine="0",transfer_type="CPU_to_GPU"}} 1
'''
OLD = '''vllm:kv_offload_total_bytes_total{{transfer_type="CPU_to_GPU"}} {0}e+09
vllm:kv_offload_total_bytes_total{{transfer_type="GPU_to_CPU"}} 9e+15
vllm:kv_offload_total_time_total{{transfer_type="CPU_to_GPU"}} {1}
vllm:kv_offload_total_time_total{{transfer_type="GPU_to_CPU"}} 1
vllm:kv_offload_tiering_read_bytes_total{{tier="1:fs"}} {0}e+08
vllm:kv_offload_tiering_read_time_total{{tier="1:fs"}} {1}
vllm:kv_offload_tiering_read_bytes_total{{tier="2:obj"}} {0}e+08
vllm:kv_offload_tiering_read_time_total{{tier="2:obj"}} {1}
'''


class MetricsPage(http.server.BaseHTTPRequestHandler):
    text = ""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, *_):
        pass


pages = http.server.HTTPServer(("127.0.0.1", 0), MetricsPage)
threading.Thread(target=pages.serve_forever, daemon=True).start()
REPORTER = os.path.join(os.path.dirname(OPENAPI), "..", "examples", "report_loads.py")


def report_page(worker, page, *flags):
    MetricsPage.text = page
    return subprocess.run([sys.executable, REPORTER, f"http://127.0.0.1:{pages.server_port}/metrics",
                           f"http://127.0.0.1:{router.port}/", worker, *flags], capture_output=True, text=True, timeout=60)


for i in range(1, 4):
    done = report_page("two", PAGE.format(4 * i, i), "--engine", "0")
    check("an engine's page is reported", done.returncode == 0 and json.loads(done.stdout)["taken"] == 1,
          done.stdout + done.stderr)
    done = report_page("default/f/7/1", OLD.format(3 * i, i))
    check("an older page is reported", done.returncode == 0 and json.loads(done.stdout)["taken"] == 2,
          done.stdout + done.stderr)
done = report_page("two", PAGE.format(4, 1), "--engine", "0", "--loads-tier", "STORAGE")
check("the loads of an engine may be loads from storage",
      done.returncode == 0 and json.loads(done.stdout)["taken"] == 1, done.stdout + done.stderr)
done = report_page("nobody", PAGE.format(1, 1))
check("the reporter names an unknown worker", done.returncode == 1 and "nobody" in done.stderr, done.stderr)
done = report_page("two", "vllm:num_requests_running 1\n")
check("a page without loads is an error", done.returncode == 1 and "no counters of loads" in done.stderr, done.stderr)
pages.shutdown()
measured = {w["name"]: {t: r["measured_bytes_per_s"] for t, r in w["load_rates"]["tiers"].items()}
            for w in router.call("GET", "/v1/state")[1]["workers"]}
check("the state has the rates of the reported pages", measured["two"] == {"CPU": 4e9, "STORAGE": None} and
      measured["default/f/7/1"] == {"CPU": 3e9, "STORAGE": 3e8}, measured)
state = router.call("GET", "/v1/state")[1]
rates = state["workers"][0]["load_rates"]["tiers"]
check("the state has the rates of /v1/load_rates",
      rates["CPU"]["measured_bytes_per_s"] == 2e9 and rates["CPU"]["cost"] is None and
      rates["STORAGE"]["reports"]["small"] == 3, rates)
check("feedback ends the booking", state["routing"]["bookings"] == 0 and
      state["routing"]["equal"] == 1 and state["routing"]["first_tokens"] == 1 and
      state["routing"]["predicted_first_token_s"] > 0 and state["workers"][0]["load"]["decode_blocks"] == 0, state)
check("blocks by group and tier",
      {t: v["held"] for t, v in state["workers"][0]["groups"][0]["tiers"].items()} ==
      {"GPU": 4, "CPU": 1}, state["workers"][0]["groups"])

# The latest events, decisions and figures.
status, reply = router.call("GET", "/v1/events?worker=one&tier=CPU")
check("events by worker and tier", [(e["type"], e["blocks"], e["group"]) for e in reply["events"]] ==
      [("stored", 1, 0)], reply)
check("no event is newer than the last one", router.call("GET", f"/v1/events?since={reply['next']}")[1]["events"] == [])
check("events: an invalid number", router.call("GET", "/v1/events?since=x")[0] == 400)
status, reply = router.call("GET", "/v1/decisions")
check("the booked decision", [d["request_id"] for d in reply["decisions"]] == ["r1"], reply)
check("decisions: an invalid number", router.call("GET", "/v1/decisions?since=x")[0] == 400)
until("samples have the held blocks by tier, group and kind", lambda: any(
    "GPU group 0: full_attention" in sample["held"] for sample in router.call("GET", "/v1/history")[1]["samples"]))
check("history: an invalid number", router.call("GET", "/v1/history?since=-1")[0] == 400)

# A source that receives pushed events.
pushed = {"name": "pushed", "endpoint": "push", "format": "trtllm", "window_sizes": [4096], "tokens_per_block": 4,
          "partial_reuse": False, "model": "p"}
check("a source that receives pushed events is added", router.call("POST", "/v1/sources", pushed)[0] == 201)
block = {"block_hash": 9, "tokens": [{"token_id": token, "token_extra_id": 0} for token in range(4)]}
stored = [{"event_id": 0, "window_size": 4096, "data": {"type": "stored", "parent_hash": None, "blocks": [block]}}]
check("pushed events are accepted", router.call("POST", "/v1/events?worker=pushed", stored)[0] == 200)
answer = router.call("POST", "/v1/query", {"model": "p", "tokens": list(range(6))})[1]["workers"][0]
check("a query finds the pushed block", (answer["reusable_tokens"], answer["exact"]) == (4, True), answer)
check("events for an unknown source are refused", router.call("POST", "/v1/events?worker=nobody", stored)[0] == 404)
check("events for a source that does not receive pushes are refused",
      router.call("POST", "/v1/events?worker=one", stored)[0] == 409)
check("the source that receives pushed events is removed", router.call("DELETE", "/v1/sources?name=pushed")[0] == 200)

# The other routes.
check("health", router.call("GET", "/healthz")[1]["sources"] == 3)
check("indexer API: health", router.call("GET", "/health")[0] == 200)
check("the router serves the OpenAPI document", router.call("GET", "/openapi.json")[1]["openapi"].startswith("3."))
page = router.call("GET", "/metrics")[1]
check("metrics", 'kvcast_blocks{worker="one",tier="CPU",group="0",kind="full_attention"} 1' in page)
if shutil.which("promtool"):
    lint = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True)
    check("promtool", lint.returncode == 0, lint.stderr)

# The dashboard in examples/monitoring names existing metrics (monitoring_test.py checks the alerts). A router starts
# with examples/deploy/router.json.
examples = os.path.join(os.path.dirname(OPENAPI), "..", "examples")
with open(os.path.join(examples, "monitoring", "grafana-dashboard.json"), encoding="utf-8") as file:
    for metric in set(re.findall(r"kvcast_[a-z_]+", file.read())):
        check(f"grafana-dashboard.json: {metric} is on the page", re.search(rf"^{metric}[{{ ]", page, re.M))
if shutil.which("promtool"):
    lint = subprocess.run(["promtool", "check", "config", os.path.join(examples, "monitoring", "prometheus.yml")],
                          capture_output=True, text=True)
    check("promtool check config", lint.returncode == 0, lint.stdout + lint.stderr)
deployed = Router("--config", os.path.join(examples, "deploy", "router.json"))
check("the example's configuration", deployed.call("GET", "/healthz")[1]["sources"] == 1)
deployed.stop()

# Bad requests on each route: invalid JSON, wrong types, unknown names.
posts = [path for path, methods in SPEC["paths"].items() if "post" in methods]
for path in posts:
    for body in (b"", b"{", b"[1]", b"null", b"\xff\xfe", b'{"surprise": 1}', b'{"tokens": "1"}',
                 b"[" * 60000, json.dumps({name: {"x": [True]} for name in (
                     "tokens", "hashes", "token_ids", "block_hashes", "instance_id", "endpoint",
                     "name", "event", "model_name", "block_size")}).encode()):
        status, reply = router.call("POST", path, body)
        check(f"POST {path} {body[:20]}", status == 400 and reply["error"], reply)
    check(f"POST {path}: one byte too much", router.call("POST", path, b" " * ((16 << 20) + 1))[0] == 413)
    if "get" not in SPEC["paths"][path]:
        check(f"GET {path}", router.call("GET", path, validate=False)[0] == 405)
for path, methods in SPEC["paths"].items():
    if "post" not in methods:
        check(f"POST {path}", router.call("POST", path, "{}", validate=False)[0] == 405)
for method, target, body, code in [
        ("POST", "/v1/query", {**hashes, "workers": ["nobody"]}, 400),
        ("POST", "/v1/query", {**hashes, "model": "none"}, 404),
        ("POST", "/v1/route", {**hashes, "model": "none"}, 404),
        ("POST", "/v1/route", {"hashes": [1]}, 400),  # two models are served
        ("POST", "/v1/route", {**hashes, "temperature": -1}, 400),
        ("POST", "/v1/route", {**hashes, "ttft_slo_ms": -1}, 400),
        ("POST", "/v1/query", {**hashes, "ttft_slo_ms": 1}, 400),
        ("POST", "/v1/feedback", {"event": "load", "worker": "nobody", "queued_requests": 1}, 404),
        ("POST", "/v1/feedback", {"event": "admitted", "request_id": "r"}, 400),
        ("POST", "/v1/load_rates", {"worker": "nobody", "loads": [{"tier": "CPU", "bytes": 1, "seconds": 1}]}, 404),
        ("POST", "/v1/load_rates", {"worker": "one", "loads": [{"tier": "GPU", "bytes": 1, "seconds": 1}]}, 400),
        ("DELETE", "/v1/sources", None, 400),
        ("DELETE", "/v1/sources?name=nobody", None, 404),
        ("POST", "/query", {"token_ids": [1], "model_name": "none"}, 404),
        ("POST", "/query_by_hash", {"block_hashes": [1], "model_name": "none"}, 404),
        ("POST", "/query_by_hash", {"block_hashes": [1], "model_name": "f", "cache_salt": "s"}, 400),
        ("POST", "/register", {"instance_id": 7, "endpoint": one.endpoint, "model_name": "f",
                               "block_size": 16, "dp_rank": 1}, 409),
        ("POST", "/register", {"instance_id": 8, "endpoint": "x", "model_name": "f", "block_size": 16}, 400),
        ("POST", "/register", {"instance_id": 8, "endpoint": "push", "model_name": "f", "block_size": 16}, 400),
        ("POST", "/register", {"instance_id": 8, "endpoint": one.endpoint, "model_name": "f",
                               "block_size": 16, "additional_salt": "s"}, 400),
        ("POST", "/unregister", {"instance_id": 9, "model_name": "f"}, 404)]:
    status, reply = router.call(method, target, body)
    check(f"{method} {target} {body}", status == code, reply)
check("an unknown path", router.call("GET", "/nowhere", validate=False)[0] == 404)

# After a worker is removed, the next answer does not contain the worker.
check("unregister", router.call("POST", "/unregister", {"instance_id": 7, "model_name": "f"})[1]["removed"] == 1)
check("a source is removed", router.call("DELETE", "/v1/sources?name=two")[0] == 200)
check("one worker is left",
      [w["name"] for w in router.call("POST", "/v1/query", {"hashes": [1]})[1]["workers"]] == ["one"])

# Many connections are open. Nine in ten send nothing. Each tenth connection sends the beginning of a request. Each
# hundredth connection sends one more byte later.
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
count = min(10000, hard - 300)
before = router.memory_kb()
idle = []
for i in range(count):
    client = socket.create_connection(("127.0.0.1", router.port))
    if i % 10 == 0:
        client.send(b"POST /v1/query HTTP/1.1\r\nContent-Le")
    idle.append(client)
grown = router.memory_kb() - before
check(f"{count} idle connections take little memory", grown < LITTLE_KB, f"{grown} KiB")
for client in idle[::100]:
    client.send(b"n")
check("the service answers beside idle connections", router.call("POST", "/v1/query", {"hashes": [1]})[0] == 200)
open_now = int(re.search(r"^kvcast_http_connections (\d+)", router.call("GET", "/metrics")[1], re.M).group(1))
check("the idle connections are still open", open_now > count * 9 // 10, open_now)
for client in idle:
    client.close()
print(f"{count} idle connections: {grown} KiB")

# After SIGTERM the router answers the requests in flight, then the process exits with code 0.
def held_bytes():
    return int(re.search(r"^kvcast_http_held_bytes (\d+)", router.call("GET", "/metrics")[1], re.M).group(1))


idle_bytes = held_bytes()  # of the request for the metrics itself
slow = socket.create_connection(("127.0.0.1", router.port))
body = json.dumps({"hashes": [1]}).encode()
slow.send(b"POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:5])
until("the request has begun", lambda: held_bytes() > idle_bytes)
router.process.send_signal(signal.SIGTERM)
until("no new connections", lambda: socket.socket().connect_ex(("127.0.0.1", router.port)) != 0)
slow.send(body[5:])
slow.settimeout(20)
answer = b""
while piece := slow.recv(65536):
    answer += piece
check("a request that has begun is answered", answer.startswith(b"HTTP/1.1 200") and
      b'"reusable_tokens"' in answer, answer[:200])
check("after SIGTERM the exit code is 0", router.process.wait(timeout=20) == 0)

# An empty router, and a configuration file.
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "config.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"sources": [{"name": "filed", "endpoint": one.endpoint}],
                   "weights": {"load_token": 0.5}}, file)
    filed = Router("--config", path)
    check("the router has the source of the configuration file",
          filed.call("GET", "/v1/sources")[1]["sources"][0]["name"] == "filed")
    filed.stop()
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"weights": {"load": 1}}')
    bad = subprocess.run([KVCAST, "router", "--config", path], capture_output=True, text=True, timeout=20)
    check("a wrong file is a usage error", bad.returncode == 2 and "weights" in bad.stderr, bad.stderr)
empty = Router()
check("route without a worker", empty.call("POST", "/v1/route", {"tokens": [1]})[0] == 503)
check("a router without sources is ready", empty.call("GET", "/readyz")[0] == 200)
empty.call("POST", "/v1/sources", {"name": "x", "endpoint": "tcp://127.0.0.1:1"})
check("a router is not ready while a source does not answer", empty.call("GET", "/readyz")[0] == 503)
empty.stop()

# A router with tokens. Requests without a body are sufficient: the token is checked first.
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "tokens")
    with open(path, "w", encoding="utf-8") as file:
        file.write("query q\nobserve o\nadmin a\n")
    os.chmod(path, 0o600)
    guarded = Router("--token-file", path, "--max-http-sources", "1")
    for target, methods in SPEC["paths"].items():
        for method, described in methods.items():
            if "401" not in described["responses"]:
                check(f"{method} {target} needs no token", guarded.call(method.upper(), target)[0] in (200, 503))
                continue
            check(f"{method} {target} needs a token", guarded.call(method.upper(), target)[0] == 401)
            check(f"{method} {target} refuses a wrong token", guarded.call(method.upper(), target, token="x")[0] == 401)
            wrong_role = "o" if "query" in target else "q"
            check(f"{method} {target} needs a role", guarded.call(method.upper(), target, token=wrong_role)[0] == 403)
    sources = [{"name": name, "endpoint": "tcp://127.0.0.1:1"} for name in ("first", "second")]
    check("a source is registered with a token", guarded.call("POST", "/v1/sources", sources[0], token="a")[0] == 201)
    check("sources of clients are bounded", guarded.call("POST", "/v1/sources", sources[1], token="a")[0] == 503)
    check("registrations are bounded", guarded.call("POST", "/register", {
        "instance_id": 1, "endpoint": "tcp://127.0.0.1:1", "model_name": "m", "block_size": 16}, token="a")[0] == 503)
    guarded.stop()

    def expect_usage_error(message, *flags):
        """The router ends with exit code 2 and one line that contains the message."""
        run = subprocess.run([KVCAST, "router", "--http", "127.0.0.1:0", *flags], capture_output=True, text=True,
                             timeout=20)
        check(f"{flags} is a usage error",
              run.returncode == 2 and run.stderr.count("\n") == 1 and message in run.stderr,
              f"{run.returncode} {run.stderr}")

    os.chmod(path, 0o644)
    expect_usage_error("set mode 0600 or 0400", "--token-file", path)
    expect_usage_error("No such file", "--token-file", path + ".none")
    for text, message in [("root t\n", "line 1: unknown role"), ("query\n", "line 1: no token"),
                          ("query t\nroute t\n", "line 2: an earlier line"), ("", "contains no token")]:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o600)
        expect_usage_error(message, "--token-file", path)
    expect_usage_error("No such file", "--tls-cert", path + ".none", "--tls-key", path)
    expect_usage_error("not a PEM certificate", "--tls-cert", path, "--tls-key", path)
    expect_usage_error("--admin-listen", "--admin-listen", "nowhere")
    expect_usage_error("not loopback", "--admin-listen", "0.0.0.0:0")
    expect_usage_error("--source-network", "--source-network", "10.0.0.1/8")
    expect_usage_error("--allowed-host", "--allowed-host", "router:80")
    expect_usage_error("max_sources", "--max-sources", "1", "--source", "a=tcp://127.0.0.1:1", "--source",
                       "b=tcp://127.0.0.1:1")

    socket_path = os.path.join(folder, "admin")
    split = Router("--admin-listen", "unix:" + socket_path)
    check("the public address registers nothing", split.call("POST", "/v1/sources", sources[0], validate=False)[0] == 405)
    with socket.socket(socket.AF_UNIX) as admin:
        admin.connect(socket_path)
        text = json.dumps(sources[0])
        admin.sendall(f"POST /v1/sources HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                      f"Content-Length: {len(text)}\r\n\r\n{text}".encode())
        check("the admin socket registers a source", admin.recv(65536).startswith(b"HTTP/1.1 201"))
    split.stop()
    check("the admin socket is removed", not os.path.exists(socket_path))

for path, methods in SPEC["paths"].items():
    for method, described in methods.items():
        for status in described["responses"]:
            check("the test has seen every reply of the document", (path, method, int(status)) in covered,
                  f"{method} {path} {status}")
print("all API checks passed" if failures == 0 else f"{failures} checks failed")
sys.exit(failures > 0)
