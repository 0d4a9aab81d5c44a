#!/usr/bin/python3
"""`kvcast router` follows the engines that a real DNS server (dnsmasq) names: addresses of a host name, and targets of a
service. While the server does not answer, the router keeps its sources.
usage: dns_test.py KVCAST
SPDX-License-Identifier: Apache-2.0
"""
import atexit
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from router_process import Router, check, finish, until

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from ports import free_ports

KVCAST = sys.argv[1]
SERVER = shutil.which("dnsmasq") or shutil.which("dnsmasq", path="/usr/sbin")
if SERVER is None:
    print("skipped: dnsmasq is not installed; `scripts/setup --tests` installs it")
    sys.exit(77)


class Dns:
    """A DNS server. Changed addresses are read after a signal; services are fixed."""

    def __init__(self, folder, port, *flags, addresses=()):
        self.hosts = pathlib.Path(folder) / "hosts"
        self.write(addresses)
        self.process = subprocess.Popen(
            [SERVER, "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv", "--no-hosts", "--user=root",
             f"--addn-hosts={self.hosts}", f"--port={port}", "--listen-address=127.0.0.1", "--bind-interfaces",
             "--pid-file=", "--local=/test/", "--log-facility=-", *flags], stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        # After the server has printed "started", it listens, and SIGHUP does not end it.
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if "started" in line:
                return
        raise AssertionError(f"the DNS server ended: {''.join(lines)}")

    def write(self, addresses):
        self.hosts.write_text("".join(f"{address} engines.test\n" for address in addresses), encoding="utf-8")

    def set(self, *addresses):
        self.write(addresses)
        self.process.send_signal(signal.SIGHUP)

    def stop(self):
        self.process.kill()
        self.process.wait(timeout=60)


def metric(router, name, lookup):
    match = re.search(rf'^{name}{{lookup="{re.escape(lookup)}"}} (\d+)$', router.get("/metrics"), re.M)
    return match and int(match[1])


with tempfile.TemporaryDirectory() as temporary:
    port, = free_ports(1)
    services = ("--srv-host=_kv._tcp.engines.test,a.engines.test,5557",
                "--srv-host=_kv._tcp.engines.test,B.engines.test,5558")
    config = pathlib.Path(temporary) / "config.json"
    config.write_text(json.dumps({"dns_server": f"127.0.0.1:{port}", "dns_sources": [
        {"lookup": "engines.test", "source": {"name": "engine-{host}", "endpoint": "tcp://{host}:9"}},
        {"lookup": "_kv._tcp.engines.test",
         "source": {"name": "service-{host}", "endpoint": "tcp://{host}:{port}", "insecure": True}}]}), encoding="utf-8")

    # The router starts before the server.
    router = Router(KVCAST, "--config", config)
    check("the failed lookup is in the log", "engines.test" in router.await_event("source_lookup_failed")["source"])
    check("no source is followed", router.endpoints() == {})
    server = Dns(temporary, port, *services)
    in_service = {"service-a.engines.test": "tcp://a.engines.test:5557",
                  "service-b.engines.test": "tcp://b.engines.test:5558"}
    until("the targets of the service are followed", lambda: router.endpoints() == in_service)
    until("the name without an address is no failure",
          lambda: metric(router, "kvcast_dns_source_errors", "engines.test") == 0)
    server.set("127.0.0.1", "127.0.0.2")
    until("the addresses are followed", lambda: router.endpoints() == in_service | {
        f"engine-127.0.0.{i}": f"tcp://127.0.0.{i}:9" for i in (1, 2)})
    # An answer of more than 512 bytes comes over TCP.
    many = {f"engine-127.0.1.{i}": f"tcp://127.0.1.{i}:9" for i in range(1, 101)}
    server.set(*(name.removeprefix("engine-") for name in many))
    until("a long answer is complete", lambda: router.endpoints() == in_service | many)

    server.stop()
    until("the failure is in the metrics", lambda: metric(router, "kvcast_dns_source_errors", "engines.test") == 1)
    check("the sources stay", router.endpoints() == in_service | many)
    check("the number of sources stays", metric(router, "kvcast_dns_source_targets", "engines.test") == 100)
    server = Dns(temporary, port, addresses=["127.0.0.3"])  # without the services
    until("the server is used again", lambda: router.endpoints() == {"engine-127.0.0.3": "tcp://127.0.0.3:9"})
    router.end()
finish()
