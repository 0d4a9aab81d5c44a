"""`kvcast router` as a process, and the part of its HTTP API that the driver uses.
SPDX-License-Identifier: Apache-2.0
"""
import ctypes
import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time

NAME = "engine"


class RouterError(Exception):
    pass


def _end_with_parent() -> None:
    """Makes the router end when this process ends, so that a killed run leaves no router."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)


class Router:
    def __init__(self, kvcast: str):
        self._process = subprocess.Popen([kvcast, "router", "--http", "127.0.0.1:0"],
                                         stderr=subprocess.PIPE, text=True,
                                         preexec_fn=_end_with_parent)
        port = None
        line = ""
        while port is None:
            line, previous = self._process.stderr.readline(), line
            if not line:
                raise RouterError(f"the router did not start: {previous.strip()}")
            port = re.search(r"http_listening .*http://[^:]+:(\d+)", line)
        threading.Thread(target=self._pass_on, daemon=True).start()
        self._connection = http.client.HTTPConnection("127.0.0.1", int(port.group(1)), timeout=60)

    def _pass_on(self) -> None:
        """Passes the router's stderr on. A full pipe would stop the router."""
        for line in self._process.stderr:
            sys.stderr.write(line)

    def call(self, method: str, target: str, body: dict | None = None) -> dict:
        data = None if body is None else json.dumps(body)
        self._connection.request(method, target, data)
        reply = self._connection.getresponse()
        text = reply.read().decode()
        if reply.status >= 300:
            raise RouterError(f"{method} {target}: {reply.status} {text.strip()}")
        return json.loads(text)

    def source_members(self) -> set[str]:
        """Returns the members of a source that this router accepts."""
        return set(self.call("GET", "/openapi.json")["components"]["schemas"]["Source"]["properties"])

    def follow(self, source: dict, name: str = NAME, timeout_s: float = 60) -> None:
        """Adds the source. Returns when the router has joined the stream."""
        self.call("POST", "/v1/sources", {"name": name} | source)
        deadline = time.monotonic() + timeout_s
        while (state := self.worker_state(name))["state"] in ("connecting", "bootstrap"):
            if time.monotonic() > deadline:
                raise RouterError(f"the stream is {state['state']}: {state.get('hint', '')}")
            time.sleep(0.005)

    def worker_state(self, name: str = NAME) -> dict:
        workers = self.call("GET", "/v1/state")["workers"]
        return next(worker for worker in workers if worker["name"] == name)

    def ask(self, query: dict, published: int, name: str = NAME, timeout_s: float = 60) -> dict:
        """Returns the answer after the router has applied exactly the first `published` batches."""
        deadline = time.monotonic() + timeout_s
        query = query | {"workers": [name]}
        while True:
            answer = self.call("POST", "/v1/query", query)["workers"][0]
            if answer["next_seq"] == published:
                return answer
            if time.monotonic() > deadline:
                raise RouterError(f"{published} batches were published, the router has applied "
                                  f"{answer['next_seq']}: {answer['state']}, {answer['reason']}")
            time.sleep(0.001)

    def kill(self) -> None:
        """Kills the process, like a machine that fails."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        self._connection.close()
        self._process.terminate()
        return self._process.wait(timeout=30)
