#!/usr/bin/python3
"""`kvcast relay --http` answers health, readiness and metrics, also before the log in NATS can be read.
usage: relay_http_test.py KVCAST
SPDX-License-Identifier: Apache-2.0
"""
import atexit
import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

from router_process import check, finish, log_entry, until
from vllm_publisher import Engine

KVCAST = sys.argv[1]
ZMQ = ("--endpoint", "tcp://127.0.0.1:0", "--replay-endpoint", "tcp://127.0.0.1:0")


class Relay:
    def __init__(self, source, *flags):
        self.process = subprocess.Popen(
            [KVCAST, "relay", "--source", source, *ZMQ, "--http", "127.0.0.1:0", "--log-format", "json", *flags],
            stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        for line in self.process.stderr:
            entry = log_entry(line)
            if entry["event"] == "http_listening":
                self.url = entry["address"]
                check("the listener is named", entry["listener"] == "relay", entry)
                return
        raise AssertionError("the relay ended before it listened")

    def get(self, path, token=None):
        """Returns the status and the body."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {token}"} if token else {})
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def ready(self):
        status, body = self.get("/readyz")
        return status, json.loads(body)

    def number(self, metric):
        lines = [line for line in self.get("/metrics")[1].splitlines() if line.startswith(metric + " ")]
        return float(lines[0].split()[1]) if len(lines) == 1 else None

    def kill(self):
        self.process.kill()
        self.process.wait(60)


def refused(*flags):
    """Returns the error of a relay that must not start."""
    ended = subprocess.run([KVCAST, "relay", "--source", "tcp://127.0.0.1:9", *ZMQ, *flags], capture_output=True, text=True,
                           timeout=60)
    check(f"{flags}: the relay does not start", ended.returncode != 0, ended)
    return ended.stderr


engine = Engine()
relay = Relay(f"{engine.source['endpoint']},{engine.source['replay_endpoint']}")
check("the process is healthy", relay.get("/healthz") == (200, '{"ok":true}\n'), relay.get("/healthz"))
until("a relay that follows its engine is ready", lambda: relay.ready() == (200, {"ready": True, "source": "synced"}))
check("the state of the source", relay.number('kvcast_stream_relay_source_state{state="synced"}') == 1)
check("other states of the source", relay.number('kvcast_stream_relay_source_state{state="stale"}') == 0)
until("batches are counted", lambda: relay.number("kvcast_stream_relay_batches_total") > 3)
check("epochs are counted", relay.number("kvcast_stream_relay_epochs_total") >= 1)
check("no batch was lost", relay.number("kvcast_stream_relay_lost_batches_total") == 0)
check("the metrics of the process", relay.number("process_resident_memory_bytes") > 1 << 20)
check("no log, no metrics of a log", "kvcast_stream_relay_event_log" not in relay.get("/metrics")[1])
check("another path", relay.get("/v1/state")[0] == 404, relay.get("/v1/state"))
port = relay.url.rpartition(":")[2]
check("an address in use is named", f"http: cannot listen on 127.0.0.1:{port}" in refused("--http", f"127.0.0.1:{port}"))
engine.end()
until("without its engine, the relay is not ready",
      lambda: relay.ready() == (503, {"ready": False, "source": "stale"}))
relay.kill()

# The relay waits for its log, because the log may have blocks that the engine cannot replay.
relay = Relay("tcp://127.0.0.1:9", "--nats", "nats://127.0.0.1:9", "--nats-source", "model/engine")
check("a relay that waits for its log is healthy", relay.get("/healthz")[0] == 200)
check("and not ready", relay.ready() == (503, {"ready": False, "source": "connecting", "log": "unreachable"}), relay.ready())
check("the state of the log", relay.number('kvcast_stream_relay_event_log_state{state="unreachable"}') == 1)
check("no batch was written", relay.number("kvcast_stream_relay_event_log_batches_total") == 0)
relay.kill()

with tempfile.TemporaryDirectory() as folder:
    tokens = pathlib.Path(folder) / "tokens"
    tokens.write_text("observe tokenOfObserver\nquery tokenOfQuery\n", encoding="ascii")
    tokens.chmod(0o600)
    relay = Relay("tcp://127.0.0.1:9", "--token-file", str(tokens))
    check("metrics need a token", relay.get("/metrics")[0] == 401)
    check("metrics need a role", relay.get("/metrics", "tokenOfQuery")[0] == 403)
    check("an observer reads metrics", relay.get("/metrics", "tokenOfObserver")[0] == 200)
    check("health needs no token", relay.get("/healthz")[0] == 200 and relay.get("/readyz")[0] == 503)
    relay.kill()

check("an address beyond loopback", "http: 0.0.0.0 is not loopback; set --allow-remote" in refused("--http", "0.0.0.0:0"))
check("no port", "http: expected ADDR:PORT" in refused("--http", "nonsense"))
check("a token file without --http", "--http" in refused("--token-file", "x"))
check("a key without a certificate", "certificate" in refused("--http", "127.0.0.1:0", "--tls-key", "x"))
finish()
