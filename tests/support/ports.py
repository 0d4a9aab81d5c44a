"""Ports for tests that must name a port before a program listens on it.
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import pathlib
import random
import socket


def free_ports(count):
    """Returns `count` different ports of 127.0.0.1 that no TCP or UDP socket holds. The kernel does not give these
    ports to clients of other tests, because they are below the range of ephemeral ports."""
    first_ephemeral = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    ports = []
    with contextlib.ExitStack() as held:
        while len(ports) < count:
            port = random.randrange(10000, first_ephemeral)
            with contextlib.suppress(OSError):
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
                    held.enter_context(socket.socket(socket.AF_INET, kind)).bind(("127.0.0.1", port))
                ports.append(port)
    return ports
