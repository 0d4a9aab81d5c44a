"""A relay that writes to a NATS server, in a process of its own, for tests.
SPDX-License-Identifier: Apache-2.0
"""
import atexit
import json
import subprocess
import threading
import urllib.request

from router_process import until


class Relay:
    """The process of the relay. `entries` has the log lines of the process, with the states of the log in NATS."""

    def __init__(self, program, source, server, name, *flags):
        command = [program, "relay", "--source", f"{source['endpoint']},{source['replay_endpoint']}", "--log-format", "json",
                   "--endpoint", "tcp://127.0.0.1:0", "--replay-endpoint", "tcp://127.0.0.1:0", "--nats", server.url,
                   "--nats-source", name, *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)
        self.entries = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stderr:
            if line.startswith("{"):
                self.entries.append(json.loads(line))

    def log_states(self):
        return [entry["state"] for entry in self.entries if entry["event"] == "nats_state"]

    def metrics(self):
        """Returns the page of metrics. Needs the flag --http."""
        (address,) = [entry["address"] for entry in self.entries if entry["event"] == "http_listening"]
        with urllib.request.urlopen(address + "/metrics", timeout=60) as reply:
            return reply.read().decode()

    def await_state(self, state):
        until(f"the relay is {state}", lambda: self.log_states()[-1:] == [state])

    def kill(self):
        self.process.kill()
        self.process.wait(60)
