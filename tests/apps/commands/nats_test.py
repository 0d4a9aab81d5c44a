#!/usr/bin/python3
"""A router that reads the log of a relay in NATS has exactly the blocks of the engine. The NATS server, the relay and
the router are killed in random order, and nothing is lost, also if the ring of the engine is too short for a new relay.
A server that cannot be reached and wrong credentials give clear states, and never the state `synced`. A second relay
has the state `standby`.
usage: nats_test.py KVCAST [KILLS [SEED]]
SPDX-License-Identifier: Apache-2.0
"""
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import nats_relay
import nats_server
from nats_server import NatsServer
from router_process import Router, check, finish, log_entry, until
from vllm_publisher import Engine, blocks, worker

KVCAST = sys.argv[1]
KILLS = int(sys.argv[2]) if len(sys.argv) > 2 else 20
SEED = int(sys.argv[3]) if len(sys.argv) > 3 else 7
NAME = "Qwen/Qwen3-32B/engine-0"

if nats_server.PROGRAM is None:
    print("skipped: no nats-server")
    sys.exit(77)


class Relay(nats_relay.Relay):
    def __init__(self, source, server, *flags, snapshot_mib=1):
        super().__init__(KVCAST, source, server, NAME, "--nats-snapshot-mib", str(snapshot_mib), *flags)


class NatsRouter(Router):
    """Keeps the log lines, so that an event may also be awaited after it was written."""

    def await_event(self, event):
        self.entries = getattr(self, "entries", [])
        for entry in self.entries:
            if entry["event"] == event:
                return entry
        for line in self.process.stderr:
            self.entries.append(log_entry(line))
            if self.entries[-1]["event"] == event:
                return self.entries[-1]
        raise AssertionError(f"the router ended before {event}")


def log_state(router):
    """Returns the state of the log on the metrics page."""
    page = router.get("/metrics")
    return [state for state in ("unreachable", "reading", "silent", "following")
            if f'kvcast_event_log_state{{worker="engine",state="{state}"}} 1\n' in page]


def follow(server, *flags):
    return NatsRouter(KVCAST, "--source", f"engine=nats:{NAME}", "--nats", server.url, *flags)


def kill(router):
    router.process.send_signal(signal.SIGKILL)
    router.process.wait(60)


def expect_equal(label, router, engine):
    engine.rest()
    until(f"{label}: synced and equal", lambda: worker(router)["state"] == "synced"
          and blocks(router) == sorted(engine.held) and worker(router)["state"] == "synced")
    engine.pause.clear()


def restarted(engine):
    engine.end()
    return Engine([engine.source[end].rpartition(":")[2] for end in ("endpoint", "replay_endpoint")])


def kills(server, relay, router, engine):
    """Kills one, two or all three programs at a time, and starts them again in random order."""
    chance = random.Random(SEED)
    print(f"{KILLS} kills, seed {SEED}")
    done = 0
    while done < KILLS:
        victims = chance.sample(("server", "relay", "router"), chance.choice((1, 1, 2, 3)))
        for victim in victims:
            if victim == "server":
                server.kill()
            elif victim == "relay":
                relay.kill()
            else:
                kill(router)
            time.sleep(chance.random() * 0.2)
        done += len(victims)
        for victim in chance.sample(victims, len(victims)):
            if victim == "server":
                server.start()
            elif victim == "relay":
                relay = Relay(engine.source, server)
            else:
                router = follow(server)
            time.sleep(chance.random() * 0.2)
        expect_equal(f"kill {done} ({' '.join(victims)})", router, engine)
    return relay, router


def main(folder):
    server = NatsServer(folder / "store").start()
    engine = Engine()
    relay = Relay(engine.source, server, "--http", "127.0.0.1:0")
    relay.await_state("writing")
    check("the relay shows that it writes", 'kvcast_stream_relay_event_log_state{state="writing"} 1\n' in relay.metrics())
    router = follow(server)
    expect_equal("a router that reads the log", router, engine)
    engine.outlive_ring()
    expect_equal("the engine's ring is too short", router, engine)

    check("the log is followed", log_state(router) == ["following"], log_state(router))
    late = follow(server)
    expect_equal("a late router", late, engine)
    late.end()
    relay.kill()
    until("without the relay, the state is stale", lambda: worker(router)["state"] == "stale")
    check("without the relay, the log is silent", log_state(router) == ["silent"], log_state(router))
    late = follow(server)
    until("a router that joins without a relay is not synced", lambda: worker(late)["state"] == "bootstrap")
    relay = Relay(engine.source, server)
    expect_equal("a relay that is started again has the blocks of the log", router, engine)
    expect_equal("a router that waited for the relay", late, engine)
    resets = [line for line in router.get("/metrics").splitlines() if line.startswith("kvcast_source_resets_total{")]
    check("the router has kept its state", resets and all(line.endswith(" 0") for line in resets), resets)
    late.end()

    engine = restarted(engine)
    expect_equal("the engine has restarted", router, engine)

    relay, router = kills(server, relay, router, engine)

    relay.kill()
    engine = restarted(engine)
    relay = Relay(engine.source, server)
    expect_equal("the engine has restarted without a relay", router, engine)
    relay.kill()
    engine.outlive_ring()
    relay = Relay(engine.source, server)
    until("batches are missing that the log does not have", lambda: worker(router)["state"] == "cleared")
    late = follow(server)
    until("a late router knows that batches are missing", lambda: worker(late)["state"] == "cleared")
    late.end()
    engine = restarted(engine)
    expect_equal("the engine has restarted with a relay", router, engine)

    second = Relay(engine.source, server)
    second.await_state("standby")
    expect_equal("two relays", router, engine)
    relay.kill()
    second.await_state("writing")
    expect_equal("the second relay writes", router, engine)

    server.kill()
    until("without the server, the state is stale", lambda: worker(router)["state"] == "stale")
    until("without the server, the log is unreachable", lambda: log_state(router) == ["unreachable"])
    second.await_state("unreachable")
    late = follow(server)
    time.sleep(1)
    check("a router without a server is not synced", worker(late)["state"] in ("connecting", "bootstrap"), worker(late))
    server.start()
    expect_equal("the server has returned", router, engine)
    expect_equal("the server has returned to the late router", late, engine)
    engine.end()
    until("the engine has ended", lambda: worker(router)["state"] == "stale")
    late.end()
    router.end()
    second.process.terminate()
    check("the relay ends", second.process.wait(60) == 128 + signal.SIGTERM)
    server.kill()


def discovery(folder):
    """Logs may be sources of a watched file, and they have a saved state like other sources."""
    server = NatsServer(folder / "discovery").start()
    engine = Engine()
    # The log must keep the batches after the saved state, also if the restart takes long on a busy machine.
    relay = Relay(engine.source, server, snapshot_mib=256)
    sources = folder / "sources.json"

    def write(*names):
        (folder / "new.json").write_text(json.dumps({"sources": [
            {"name": name, "endpoint": f"nats:{NAME}"} for name in names]}), encoding="ascii")
        (folder / "new.json").rename(sources)

    def start():
        return NatsRouter(KVCAST, "--source-file", str(sources), "--nats", server.url, "--state", str(folder / "state"),
                          "--state-interval", "1")

    write()
    router = start()
    check("the router follows no source at first", router.endpoints() == {}, router.endpoints())
    write("engine")
    followed = {"engine": f"nats:{NAME}"}
    until("the source of the file is followed", lambda: router.endpoints() == followed)
    expect_equal("a source of a file", router, engine)
    engine.outlive_ring()
    engine.rest()
    saved = time.time()
    until("the state is saved",
          lambda: any(path.stat().st_mtime > saved + 1 for path in (folder / "state").glob("*.state")))
    engine.pause.clear()
    kill(router)
    router = start()
    entry = router.await_event("source_restored")
    check("the saved state has blocks", entry["residencies"] > 0, entry)
    until("the source of the file is followed after the restart", lambda: router.endpoints() == followed)
    expect_equal("after a restart with saved state", router, engine)
    resets = [line for line in router.get("/metrics").splitlines() if line.startswith("kvcast_source_resets_total{")]
    check("the router has kept its saved state", resets and all(line.endswith(" 0") for line in resets), resets)
    write()
    until("the source has left the file", lambda: router.endpoints() == {})
    write("engine")
    until("the source is back", lambda: router.endpoints() == followed)
    expect_equal("a source that has returned", router, engine)
    refused = router.post("/v1/sources", {"name": "client", "endpoint": f"nats:{NAME}"})
    check("a client may not name a log", "tcp://HOST:PORT" in refused.get("error", ""), refused)
    router.end()
    relay.kill()
    engine.end()
    server.kill()


def expect_refused(server, engine, flags, reason):
    """Programs with wrong credentials name the reason, and go on."""
    relay = Relay(engine.source, server, *flags)
    relay.await_state("unreachable")
    check(f"{flags}: the relay logs the reason", reason in relay.entries[-1]["reason"], relay.entries)
    router = follow(server, *flags)
    entry = router.await_event("nats_state")
    check(f"{flags}: the router logs the reason", reason in entry["reason"] and entry["state"] == "unreachable", entry)
    check(f"{flags}: the router is not synced", worker(router)["state"] in ("connecting", "bootstrap"))
    router.end()
    relay.kill()


def credentials(folder):
    def file(name, text):
        path = folder / name
        path.write_text(text, encoding="ascii")
        path.chmod(0o600)
        return path

    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
                   check=True, capture_output=True)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other",
                    "-keyout", folder / "other_key.pem", "-out", folder / "other.pem"], check=True, capture_output=True)
    tls = f'tls {{ cert_file: "{folder}/cert.pem", key_file: "{folder}/key.pem" }}\n'
    engine = Engine()
    for config, right, wrong, reason in (
            ('authorization { user: "kv", password: "secret" }\n', ("--nats-user-file", file("user", "kv\nsecret\n")),
             ("--nats-user-file", file("wrong", "kv\nguess\n")), "uthoriz"),
            ('authorization { token: "s3cr3t" }\n', ("--nats-token-file", file("token", "s3cr3t\n")),
             ("--nats-token-file", file("guess", "guess\n")), "uthoriz"),
            (tls, ("--nats-ca", folder / "cert.pem"), ("--nats-ca", folder / "other.pem"), "SSL")):
        server = NatsServer(folder / right[0], config).start()
        expect_refused(server, engine, wrong, reason)
        relay = Relay(engine.source, server, *right)
        router = follow(server, *right)
        expect_equal(f"with {right[0]}", router, engine)
        router.end()
        relay.kill()
        server.kill()
    engine.end()


def permissions(folder):
    """The permissions of docs/nats.md suffice. A router without them has the state `unreachable`, with a reason."""
    users = []
    for user, publish, subscribe in (
            ("relay", ["kvcast.>", "kvcast-status.>", "$JS.API.>"], ["kvcast-status.>", "_INBOX.>"]),
            ("router", ["$JS.API.CONSUMER.>", "$JS.API.STREAM.INFO.>", "$JS.FC.>"], ["kvcast-status.>", "_INBOX.>"]),
            ("nobody", [], ["_INBOX.>"])):
        (folder / user).write_text(f"{user}\nsecret\n", encoding="ascii")
        (folder / user).chmod(0o600)
        rights = json.dumps({"publish": {"allow": publish} if publish else {"deny": [">"]}, "subscribe": {"allow": subscribe}})
        users.append(f"{{ user: {user}, password: secret, permissions: {rights} }}")
    server = NatsServer(folder / "permissions", f"authorization {{ users: [{', '.join(users)}] }}\n").start()
    engine = Engine()
    relay = Relay(engine.source, server, "--nats-user-file", folder / "relay")
    router = follow(server, "--nats-user-file", folder / "router")
    expect_equal("with permissions", router, engine)
    engine.outlive_ring()
    expect_equal("with permissions, later", router, engine)
    nobody = follow(server, "--nats-user-file", folder / "nobody")
    entry = nobody.await_event("nats_state")
    check("without permissions, the router logs a reason", entry["state"] == "unreachable" and entry["reason"], entry)
    check("without permissions, the router is not synced", worker(nobody)["state"] in ("connecting", "bootstrap"))
    nobody.end()
    router.end()
    relay.kill()
    engine.end()
    server.kill()


def usage(folder):
    open_file = folder / "open"
    open_file.write_text("kv\nsecret\n", encoding="ascii")
    open_file.chmod(0o644)
    for command, flags, wanted in (
            ("relay", ("--nats", "nats://127.0.0.1:1"), "--nats-source"),
            ("relay", ("--nats-source", "m/w"), "--nats"),
            ("relay", ("--nats", "nats://127.0.0.1:1", "--nats-source", "w"), "MODEL/WORKER"),
            ("relay", ("--nats", "nats://me:secret@127.0.0.1:1", "--nats-source", "m/w"), "no password"),
            ("relay", ("--nats", "nats://10.0.0.1:4222", "--nats-source", "m/w"), "beyond loopback"),
            ("relay", ("--nats", "http://127.0.0.1:1", "--nats-source", "m/w"), "nats://HOST:PORT"),
            ("relay", ("--nats", "nats://127.0.0.1:1", "--nats-source", "m/w", "--nats-token-file", "/none"), "/none"),
            ("router", ("--source", "engine=nats:m/w"), "engine: nats:m/w needs --nats"),
            ("router", ("--source", "engine=nats:m/w,tcp://127.0.0.1:9", "--nats", "nats://127.0.0.1:1"), "replay_endpoint"),
            ("router", ("--source", "engine=nats:w", "--nats", "nats://127.0.0.1:1"), "MODEL/WORKER"),
            *(("router", ("--nats", "nats://127.0.0.1:1", flag, open_file), "other users can access it")
              for flag in ("--nats-user-file", "--nats-token-file", "--nats-credentials"))):
        needed = (("--source", "tcp://127.0.0.1:9", "--endpoint", "tcp://127.0.0.1:0", "--replay-endpoint",
                   "tcp://127.0.0.1:0") if command == "relay" else ("--http", "127.0.0.1:0"))
        refused = subprocess.run([KVCAST, command, *needed, *flags], text=True, capture_output=True, timeout=60)
        check(f"{command} {flags} is refused", refused.returncode != 0 and wanted in refused.stderr, refused)


with tempfile.TemporaryDirectory() as temporary:
    usage(pathlib.Path(temporary))
    credentials(pathlib.Path(temporary))
    discovery(pathlib.Path(temporary))
    permissions(pathlib.Path(temporary))
    main(pathlib.Path(temporary))
finish()
