#!/usr/bin/python3
"""With default options, the commands listen on loopback only. The test reads the list of sockets from the system
(/proc/net). First it checks that this list shows a socket that listens on all interfaces. The test runs in a network
namespace of its own, where the default ports are free. If the system does not allow this, the commands get free ports
on the default hosts.
usage: listeners_test.py KVCAST
SPDX-License-Identifier: Apache-2.0
"""
import ctypes
import fcntl
import ipaddress
import os
import re
import signal
import socket
import struct
import subprocess
import sys

KVCAST = sys.argv[1]
LISTEN = "0A"
TABLES = ("tcp", "tcp6", "udp", "udp6", "raw", "raw6")


CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914


def enter_namespace():
    """Moves this process into a network namespace of its own, with loopback. Returns false if the system refuses."""
    system = ctypes.CDLL(None, use_errno=True)
    if system.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 and system.unshare(CLONE_NEWNET) != 0:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH22x", b"lo", 0)
        flags = struct.unpack("16sH22x", fcntl.ioctl(control, SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | 1))  # IFF_UP
    return True


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
    """Returns (protocol, address, port) of each socket of the processes that accepts data from any peer."""
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
    """Runs the command until a line of its output has the pattern `ready`. Checks its sockets, and counts them."""
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


def test_that_open_sockets_are_found():
    for family, host, loopback in [(socket.AF_INET, "0.0.0.0", False), (socket.AF_INET6, "::", False),
                                   (socket.AF_INET, "127.0.0.1", True), (socket.AF_INET6, "::1", True)]:
        for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
            with socket.socket(family, kind) as probe:
                probe.bind((host, 0))
                if kind == socket.SOCK_STREAM:
                    probe.listen()
                found = [each for each in listeners([os.getpid()]) if each[2] == probe.getsockname()[1]]
                assert len(found) == 1 and is_loopback(found[0][1]) == loopback, (host, kind, found)


def free(*flags):
    """Returns the flags that give the command free ports, or no flags if the default ports are free."""
    return [] if in_own_namespace else list(flags)


in_own_namespace = enter_namespace()
test_that_open_sockets_are_found()
total = 0
total += check(["router", *free("--http", "127.0.0.1:0")], r"http_listening", 1)
total += check(["router", *free("--http", "127.0.0.1:0"), "--relay", "tcp://127.0.0.1:0"], r"http_listening", 2)
total += check(["engine", *free("--endpoint", "tcp://127.0.0.1:0", "--replay-endpoint", "tcp://127.0.0.1:0")],
               r"stream_listening", 2)
total += check(["relay", "--source", "tcp://127.0.0.1:9",
                *free("--endpoint", "tcp://127.0.0.1:0", "--replay-endpoint", "tcp://127.0.0.1:0")],
               r"stream_listening", 2)
total += check(["demo", "--serve", "127.0.0.1:0", "--engines", "2"], r"http://127\.0\.0\.1:\d+", 6)
for command, count in ("engine", 2), ("relay", 2):
    help_text = subprocess.run([KVCAST, command, "--help"], capture_output=True, text=True, check=True).stdout
    defaults = re.findall(r"=(tcp://\S+)", help_text)
    assert len(defaults) == count and all(each.startswith("tcp://127.0.0.1:") for each in defaults), defaults
help_text = subprocess.run([KVCAST, "router", "--help"], capture_output=True, text=True, check=True).stdout
assert "(default: 127.0.0.1:8080)" in " ".join(help_text.split()), help_text
print(f"{total} listening sockets, all on loopback" + ("" if in_own_namespace else "; the default ports were not used"))
