#!/usr/bin/python3
"""A router that starts takes the state of a running router. The new router then has exactly the blocks of its engines.
The replay ring of one engine holds only a small part of the engine's batches. Each router joins the previous router,
which is then killed. A join that fails is a cold start. The second part uses TLS and tokens.
usage: join_test.py KVCAST [JOINS]
SPDX-License-Identifier: Apache-2.0
"""
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from router_process import Router, check, finish, until
from vllm_publisher import Engine, expect_exact

KVCAST = sys.argv[1]
JOINS = int(sys.argv[2]) if len(sys.argv) > 2 else 4
ADMIN = ("--admin-listen", "127.0.0.1:0")


def metric(router, name):
    return float(router.get("/metrics").split(f"\n{name} ")[1].split("\n")[0])


def ended(router, state):
    return metric(router, f'kvcast_peer_join_state{{state="{state}"}}') == 1


def workers(router):
    return {worker["name"]: worker for worker in json.loads(router.get("/v1/state"))["workers"]}


def dump(router, model):
    """Returns the blocks of the workers of a model, with their tiers, groups and copies."""
    models = json.loads(router.get(f"/dump?model_name={model}")).values()
    return sorted((event["medium"], event["group_idx"], str(block["block_hash"]), block.get("copies", 1))
                  for scope in models for event in scope["events"] for block in event["event"]["data"]["stored"]["blocks"])


class ModelRouter(Router):
    """Returns only the workers of the model `vllm`: the engine with vLLM's protocol."""

    def get(self, path):
        return super().get(path + "?model_name=vllm" if path == "/dump" else path)

    def ask(self, query):
        return super().ask(query | {"model": "vllm"})


class SimulatedEngine:
    """A process with epochs and digests, which plays a trace."""

    def __init__(self):
        self.process = subprocess.Popen(
            [KVCAST, "engine", "--endpoint", "tcp://127.0.0.1:0", "--replay-endpoint", "tcp://127.0.0.1:0", "--speed",
             "2", "--blocks", "20000"], stderr=subprocess.PIPE, text=True)
        match = re.search(r"stream_listening stream=engine address=(\S+) replay=(\S+)", self.process.stderr.readline())
        self.source = {"name": "simulated", "model": "simulated", "endpoint": match[1], "replay_endpoint": match[2]}


def at_rest(routers):
    """True: the routers are synced at the same batch, and no more batches arrive."""
    before = None
    while True:
        now = [(workers(router)["simulated"]["state"], workers(router)["simulated"]["next_seq"]) for router in routers]
        if any(state != "synced" for state, _ in now):
            return False
        if now == before:
            return now[0] == now[1]
        before = now


def expect_same_blocks(label, first, second, simulated):
    """Checks that both routers have the blocks of the simulated engine, also by the digest of the engine."""
    for router in (first, second):
        checks = 'kvcast_source_digest_checks_total{worker="simulated"}'
        until(f"{label}: the digest is compared", lambda router=router: metric(router, checks) > 0)
        differ = metric(router, 'kvcast_source_digest_mismatches_total{worker="simulated"}')
        check(f"{label}: the digests are equal", differ == 0, differ)

    def same():
        # The engine is stopped for a short time only. Otherwise, a router that misses batches gives up its state.
        simulated.process.send_signal(signal.SIGSTOP)
        rests = at_rest((first, second))
        dumps = [dump(router, "simulated") for router in (first, second) if rests]
        simulated.process.send_signal(signal.SIGCONT)
        if rests:
            check(f"{label}: equal blocks", dumps[0] == dumps[1])
            check("the simulated engine has blocks", len(dumps[0]) > 1000)
        return rests

    until(f"{label}: both routers are synced at the same batch", same)


def join(config, peer, *flags):
    return ModelRouter(KVCAST, "--config", config, *ADMIN, "--peer", peer, *flags)


def join_with(outcome, config, peer, *flags):
    """Returns a router. Its join ended with the outcome. On a busy machine, the first tries may take too long."""
    for _ in range(20):
        router = join(config, peer, *flags)
        if ended(router, outcome) or not (ended(router, "timeout") or ended(router, "busy")):
            break
        router.end()
    states = [line for line in router.get("/metrics").splitlines()
              if line.startswith("kvcast_peer_join_state{") and line.endswith(" 1")]
    check(f"the join ends with {outcome}", ended(router, outcome), states)
    return router


def test_joins(config, engine, simulated):
    first = ModelRouter(KVCAST, "--config", config, *ADMIN)
    expect_exact("the first router", first, engine)
    engine.outlive_ring()
    expect_exact("with a ring that is shorter than the life of the engine", first, engine)
    for number in range(JOINS):
        second = join_with("complete", config, first.url)
        check("both workers are restored", metric(second, "kvcast_peer_join_workers_restored_total") == 2)
        expect_exact(f"join {number}", second, engine)
        expect_same_blocks(f"join {number}", first, second, simulated)
        for name in ("engine", "simulated"):
            resets = metric(second, f'kvcast_source_resets_total{{worker="{name}"}}')
            check("the state was not dropped", resets == 0, workers(second)[name])
        first.process.send_signal(signal.SIGKILL)
        first.process.wait(60)
        first = second
    return first


def test_failures(config, engine, first):
    first.process.send_signal(signal.SIGSTOP)
    second = join(config, first.url)
    check("a peer that stalls is given up", ended(second, "timeout"))
    until("the worker is cleared, not synced", lambda: workers(second)["engine"]["state"] == "cleared")
    first.process.send_signal(signal.SIGCONT)
    second.end()

    first.process.send_signal(signal.SIGSTOP)
    starting = subprocess.Popen([KVCAST, "router", "--http", "127.0.0.1:0", "--config", config, "--peer", first.url,
                                 "--peer-timeout-ms", "60000"], stderr=subprocess.PIPE, text=True)
    starting.terminate()
    check("a signal ends a router that joins", starting.wait(60) in (0, -signal.SIGTERM))
    first.process.send_signal(signal.SIGCONT)

    expect_exact("the peer goes on", first, engine)
    first.end()
    second = join(config, first.url)
    check("a peer that has ended is unreachable", ended(second, "unreachable"))
    until("the worker is cleared", lambda: workers(second)["engine"]["state"] == "cleared")
    second.end()


def make_certificate(folder):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "peer.key", "-out", folder / "peer.crt"],
                   check=True, capture_output=True)


def secret_file(path, text):
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path


def test_tls(folder, config):
    """The first router has a certificate and tokens. The other routers have neither, and join the first."""
    make_certificate(folder)
    tokens = secret_file(folder / "tokens", "admin secret-of-admin\nobserve secret-of-observer\n")
    running = subprocess.Popen([KVCAST, "router", "--http", "127.0.0.1:0", "--log-format", "json", "--config", config, *ADMIN,
                                "--token-file", tokens, "--tls-cert", folder / "peer.crt", "--tls-key",
                                folder / "peer.key"], stderr=subprocess.PIPE, text=True)
    for line in running.stderr:
        entry = json.loads(line)
        if entry["event"] == "http_listening" and entry["listener"] == "admin":
            break
    good = secret_file(folder / "good", "secret-of-admin\n")
    weak = secret_file(folder / "weak", "secret-of-observer\n")
    ca = ("--peer-ca-file", folder / "peer.crt")
    for outcome, flags in {"complete": (*ca, "--peer-token-file", good),
                           "credentials": (*ca, "--peer-token-file", weak),
                           "unreachable": ("--peer-token-file", good)}.items():
        join_with(outcome, config, entry["address"], *flags).end()
    join_with("credentials", config, entry["address"], *ca).end()
    running.kill()
    running.wait()


with tempfile.TemporaryDirectory() as temporary:
    in_folder = pathlib.Path(temporary)
    publisher, simulated = Engine(), SimulatedEngine()
    configuration = in_folder / "config.json"
    publisher.source["model"] = "vllm"
    configuration.write_text(json.dumps({"sources": [publisher.source, simulated.source]}), encoding="utf-8")
    test_failures(configuration, publisher, test_joins(configuration, publisher, simulated))
    if shutil.which("openssl") is None:
        print("openssl is not installed: TLS is not tested")
    else:
        test_tls(in_folder, configuration)
    simulated.process.kill()
    simulated.process.wait()
    publisher.end()
finish()
