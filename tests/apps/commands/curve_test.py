#!/usr/bin/python3
"""CURVE on the command line: keygen, the errors of keys and flags, a client without any kvcast code (pyzmq), tail,
replay and the router's relay.
usage: curve_test.py KVCAST
SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import stat
import subprocess
import sys
import tempfile

import zmq

KVCAST = sys.argv[1]
PATIENCE_S = 300
TIMEOUT_MS = PATIENCE_S * 1000


def run(*arguments, code=0):
    done = subprocess.run([KVCAST, *arguments], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
    return done


def start(*arguments):
    return subprocess.Popen([KVCAST, *arguments], stderr=subprocess.PIPE, text=True)


def await_line(process, pattern):
    """Returns the match of the first line of stderr that has the pattern."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        match = re.search(pattern, line)
        if match:
            return match
    raise AssertionError(f"the program ended before a line with {pattern}: {lines}")


def end(process):
    process.kill()
    process.wait()
    process.stderr.close()


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def read(path):
    with open(path, encoding="ascii") as file:
        return file.read().strip()


def write(path, text, file_mode=0o600):
    with open(path + ".new", "w", encoding="ascii") as file:
        file.write(text)
    os.chmod(path + ".new", file_mode)
    os.rename(path + ".new", path)


def test_keygen():
    os.umask(0o022)
    printed = run("keygen", "--out", "engine").stdout.strip()
    assert read("engine.pub") == printed and len(printed) == 40, printed
    assert mode("engine.key") == 0o600 and mode("engine.pub") == 0o644
    secret = read("engine.key")
    assert zmq.curve_public(secret.encode()).decode() == printed
    refused = run("keygen", "--out", "engine", code=1)
    assert "engine.key: exists already; --force replaces it" in refused.stderr, refused.stderr
    assert read("engine.key") == secret and read("engine.pub") == printed
    os.chmod("engine.key", 0o666)
    renewed = run("keygen", "--out", "engine", "--force").stdout.strip()
    assert renewed != printed and read("engine.pub") == renewed
    assert mode("engine.key") == 0o600
    run("keygen", "--out", "no/such/folder", code=1)
    run("keygen", code=2)
    run("keygen", "--out", "client")


def test_errors():
    """Each error is one line, with exit code 2, and does not show a key."""
    write("clients", f"subscribe,replay,snapshot {read('client.pub')} client\n")
    write("loose.key", read("engine.key"), 0o640)
    write("short.key", read("engine.key")[:-1])
    write("letters.key", "\"" + read("engine.key")[1:])
    write("bad_clients", "reader " + read("client.pub") + "\n")
    remote = "tcp://203.0.113.1:5557"
    engine = ["engine", "--curve-key"]
    cases = [
        (engine + ["loose.key", "--curve-clients", "clients"], "users other than the owner"),
        (engine + ["short.key", "--curve-clients", "clients"], "40 characters, not 39"),
        (engine + ["letters.key", "--curve-clients", "clients"], "not Z85"),
        (engine + ["none.key", "--curve-clients", "clients"], "none.key: No such file"),
        (engine + ["engine.key", "--curve-clients", "bad_clients"], "bad_clients: line 1"),
        (engine + ["engine.key"], "set both --curve-key and --curve-clients"),
        (["engine", "--endpoint", remote], f"{remote} is not loopback; set --curve-key"),
        (["engine", "--endpoint", "tcp://*:5557"], "tcp://*:5557 is not loopback"),
        (["engine", "--replay-endpoint", "tcp://*:5657"], "tcp://*:5657 is not loopback"),
        (["replay", CAPTURE, "--endpoint", remote], "is not loopback"),
        (["tail", remote], f"{remote} is not loopback; set --curve-key and --server-key"),
        (["tail", "--curve-key", "client.key"], "set both --curve-key and --server-key"),
        (["tail", "--curve-key", "client.key", "--server-key", "x"], "40 characters, not 1"),
        (["router", "--source", f"w={remote}"], "is not loopback; set server_key"),
        (["router", "--source", f"w={remote},server_key={read('engine.pub')}"], "has no keys"),
        (["router", "--allow-remote", "--relay", "tcp://*:5558"], "set curve_key and curve_clients"),
        (["router", "--http", "127.0.0.1:0", "--curve-key", "loose.key"], "users other than"),
    ]
    for arguments, text in cases:
        done = run(*arguments, code=2)
        assert text in done.stderr and done.stderr.count("\n") == 1, (arguments, done.stderr)
        assert read("engine.key")[5:30] not in done.stderr, arguments


def engine_with_curve(*more):
    engine = start("engine", "--endpoint", "tcp://127.0.0.1:0", "--replay-endpoint", "tcp://127.0.0.1:0",
                   "--curve-key", "engine.key", "--curve-clients", "clients", "--speed", "200",
                   "--blocks", "20000", *more)
    match = await_line(engine, r"stream_listening stream=engine address=(\S+) replay=(\S+)")
    return engine, match[1], match[2]


def connected_socket(context, kind, endpoint, client="client", server="engine"):
    socket = context.socket(kind)
    socket.linger = 0
    if client:
        socket.curve_secretkey = read(client + ".key").encode()
        socket.curve_publickey = read(client + ".pub").encode()
        socket.curve_serverkey = read(server + ".pub").encode()
    if kind == zmq.SUB:
        socket.subscribe("")
    socket.connect(endpoint)
    return socket


def clients_without_key(context, endpoint):
    """Returns sockets without a key. Some may close the connection before the server has read the greeting."""
    return [connected_socket(context, zmq.SUB, endpoint, client=None) for _ in range(20)]


def await_refusals(process, not_allowed=True):
    """Waits until the log has refusals of clients without a key, and of clients that are not allowed."""
    wanted = {"without a key"} | ({"not allowed"} if not_allowed else set())
    while wanted:
        match = await_line(process, r"warning stream_refused (source=127\.0\.0\.1 )?.*reason=(\w+)")
        assert match[2] != "wrong_server_key", match[0]
        assert bool(match[1]) == (match[2] == "not_allowed"), match[0]
        wanted.discard("not allowed" if match[1] else "without a key")


def test_foreign_client():
    """A client of another program receives the stream, and loses its connection when its key is revoked."""
    write("clients", f"subscribe,replay {read('client.pub')} client\n")
    engine, live_endpoint, replay_endpoint = engine_with_curve()
    context = zmq.Context()
    try:
        plain = clients_without_key(context, live_endpoint)
        live = connected_socket(context, zmq.SUB, live_endpoint)
        replay = connected_socket(context, zmq.DEALER, replay_endpoint)
        assert live.poll(TIMEOUT_MS), "no batch came with CURVE"
        newest = int.from_bytes(live.recv_multipart()[1], "big")
        replay.send_multipart([b"", (0).to_bytes(8, "big")])
        seqs = []
        while not seqs or seqs[-1] < newest:
            assert replay.poll(TIMEOUT_MS), "the replay stopped"
            seqs.append(int.from_bytes(replay.recv_multipart()[2], "big"))
        assert seqs == list(range(len(seqs))), seqs
        write("clients", "# nobody\n")
        # Both sockets are cut off, and are refused when they connect again.
        await_refusals(engine)
        while live.poll(0):  # batches that were sent before the cut
            live.recv_multipart()
        assert not live.poll(0), "a client that is not allowed any more got a batch"
        assert not any(each.poll(0) for each in plain), "a client without a key got a batch"
    finally:
        end(engine)
        context.destroy(0)


def test_tail_and_replay():
    write("clients", f"subscribe {read('client.pub')} client\n")
    engine, live_endpoint, _ = engine_with_curve()
    keys = ["--curve-key", "client.key", "--server-key"]
    try:
        tail = run("tail", live_endpoint, *keys, read("engine.pub"), "--count", "3", "--record", CAPTURE)
        assert len(re.findall(r"\d+ events\n", tail.stdout)) == 3, tail.stdout
    finally:
        end(engine)
    player = start("replay", CAPTURE, "--endpoint", "tcp://127.0.0.1:0", "--curve-key", "engine.key",
                   "--curve-clients", "clients", "--delay", "3600")
    try:
        endpoint = await_line(player, r"stream_listening stream=replay address=(\S+)")[1]
    finally:
        end(player)
    assert endpoint.startswith("tcp://127.0.0.1:"), endpoint


def test_relay():
    run("keygen", "--out", "router", "--force")
    write("clients", f"subscribe,replay,snapshot {read('router.pub')} router\n")
    write("relay_clients", f"subscribe {read('client.pub')} dashboard\n")
    engine, live_endpoint, replay_endpoint = engine_with_curve()
    router = start("router", "--http", "127.0.0.1:0", "--relay", "tcp://127.0.0.1:0", "--curve-key", "router.key",
                   "--curve-clients", "relay_clients", "--source",
                   f"w={live_endpoint},{replay_endpoint},server_key={read('engine.pub')},model=m")
    context = zmq.Context()
    try:
        relay = await_line(router, r"stream_listening stream=relay address=(\S+)")[1]
        reader = connected_socket(context, zmq.SUB, relay, server="router")
        plain = clients_without_key(context, relay)
        assert reader.poll(TIMEOUT_MS), "no batch came from the relay"
        assert reader.recv_multipart()[0].startswith(b"kv.m.w."), "not a topic of the relay"
        await_refusals(router, not_allowed=False)
        assert not any(each.poll(0) for each in plain), "a client without a key got a batch"
    finally:
        end(router)
        end(engine)
        context.destroy(0)


def test_an_insecure_source_is_logged():
    router = start("router", "--http", "127.0.0.1:0", "--source", "w=tcp://127.0.0.1:9,insecure=true")
    try:
        await_line(router, r"warning source_insecure source=w .*neither encrypted nor authenticated")
    finally:
        end(router)


with tempfile.TemporaryDirectory() as folder:
    KVCAST = os.path.abspath(KVCAST)
    os.chdir(folder)
    CAPTURE = os.path.join(folder, "capture")
    test_keygen()
    test_tail_and_replay()
    test_errors()
    test_foreign_client()
    test_relay()
    test_an_insecure_source_is_logged()
print("keygen, errors, a foreign client, tail, replay and relay")
