#!/usr/bin/python3
"""With default options, the commands listen on loopback only. The test reads the list of sockets from the system
(/proc/net). First it checks that this list shows a socket that listens on all interfaces.
usage: listeners_test.py KVCAST
SPDX-License-Identifier: Apache-2.0
"""
import ipaddress
import os
import re
import signal
import socket
import subprocess
import sys

KVCAST = sys.argv[1]
LISTEN = "0A"
TABLES = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")


def address(text):
    """Converts an address of /proc/net: words of 32 bits in the order of the machine."""
    host, port = text.split(":")
    words = [bytes.fromhex(host[i:i + 8]) for i in range(0, len(host), 8)]
    packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    return ipaddress.ip_address(packed), int(port, 16)


def is_loopback(host):
    mapped = getattr(host, "ipv4_mapped", None)
    return (mapped or host).is_loopback


def inodes(pid):
    found = set()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:  # closed meanwhile
            continue
        match = re.fullmatch(r"socket:\[(\d+)\]", target)
        if match:
            found.add(match[1])
    return found


def listeners(pids):
    """Returns (protocol, address, port) of each socket of the processes that accepts data of any peer."""
    own = set().union(*(inodes(pid) for pid in pids))
    found = set()
    for table in TABLES:
        with open(f"/proc/{pids[0]}/net/{table}", encoding="ascii") as file:
            rows = [line.split() for line in file.readlines()[1:]]
        for row in rows:
            connected = address(row[2])[1] != 0
            if row[9] in own and (row[3] == LISTEN if table.startswith("tcp") else not connected):
                found.add((table, *address(row[1])))
    return found


def children(pid):
    found = [pid]
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
            for child in file.read().split():
                found += children(int(child))
    return found


def check(arguments, ready, least):
    """Runs the command until stderr or stdout has the line, and checks its sockets."""
    process = subprocess.Popen([KVCAST, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        for line in process.stdout:
            if re.search(ready, line):
                break
        else:
            raise AssertionError(f"{arguments}: the program ended before '{ready}'")
        found = listeners(children(process.pid))
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    open_to_others = [each for each in found if not is_loopback(each[1])]
    assert not open_to_others, f"{arguments}: {open_to_others}"
    assert len(found) >= least, f"{arguments}: only {found}"
    return len(found)


def test_of_the_test():
    for family, host, own in [(socket.AF_INET, "0.0.0.0", False), (socket.AF_INET6, "::", False),
                              (socket.AF_INET, "127.0.0.1", True), (socket.AF_INET6, "::1", True)]:
        for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
            with socket.socket(family, kind) as probe:
                probe.bind((host, 0))
                if kind == socket.SOCK_STREAM:
                    probe.listen()
                found = [each for each in listeners([os.getpid()]) if each[2] == probe.getsockname()[1]]
                assert len(found) == 1 and is_loopback(found[0][1]) == own, (host, kind, found)


test_of_the_test()
total = 0
# The commands use free ports, because other programs may use the default ports. The hosts are the default hosts.
total += check(["router", "--http", "127.0.0.1:0", "--relay", "tcp://127.0.0.1:0"], r"http_listening", 2)
total += check(["engine", "--endpoint", "tcp://127.0.0.1:0", "--replay-endpoint", "tcp://127.0.0.1:0"], r"stream_listening", 2)
total += check(["demo", "--serve", "127.0.0.1:0", "--engines", "2"], r"http://127\.0\.0\.1:\d+", 6)
help_text = subprocess.run([KVCAST, "engine", "--help"], capture_output=True, text=True, check=True).stdout
defaults = re.findall(r"=(tcp://\S+)", help_text)
assert len(defaults) == 2 and all(each.startswith("tcp://127.0.0.1:") for each in defaults), defaults
help_text = subprocess.run([KVCAST, "router", "--help"], capture_output=True, text=True, check=True).stdout
assert "(default: 127.0.0.1:8080)" in " ".join(help_text.split()), help_text
print(f"{total} listening sockets, all on loopback")
