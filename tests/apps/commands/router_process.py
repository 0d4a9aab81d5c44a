"""A router in a process of its own, for tests: its events of the log, and its HTTP replies.
SPDX-License-Identifier: Apache-2.0
"""
import atexit
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request

failures = 0


def check(claim, holds, detail=""):
    global failures
    if not holds:
        failures += 1
        print(f"FAILED: {claim} {detail}")


def until(claim, holds, meanwhile=lambda: None):
    """Waits until the condition holds. Calls `meanwhile` again and again."""
    deadline = time.monotonic() + 60
    while not holds():
        meanwhile()
        if time.monotonic() > deadline:
            return check(claim, False)
        time.sleep(0.02)


def finish():
    print(f"{failures} failures")
    sys.exit(1 if failures else 0)


def log_entry(line):
    """Returns the entry of a line of the log. A line of a sanitizer is printed, and is an entry without an event."""
    if line.startswith("{"):
        return json.loads(line)
    print(line, end="")
    return {"event": None}


class Router:
    def __init__(self, program, *flags, preexec_fn=None):
        self.process = subprocess.Popen([program, "router", "--http", "127.0.0.1:0", "--log-format", "json", *flags],
                                        stderr=subprocess.PIPE, text=True, preexec_fn=preexec_fn)
        atexit.register(self.process.kill)
        self.url = self.await_event("http_listening")["address"]

    def await_event(self, event):
        for line in self.process.stderr:
            entry = log_entry(line)
            if entry["event"] == event:
                return entry
        raise AssertionError(f"the router ended before {event}")

    def get(self, path):
        """Returns the body of a reply of any status."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=60) as reply:
                return reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.read().decode()

    def post(self, path, body):
        """Returns the reply of any status to a JSON body."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return json.loads(reply.read())
        except urllib.error.HTTPError as error:
            return json.loads(error.read())

    def ask(self, query):
        """Returns the answer to a query."""
        request = urllib.request.Request(self.url + "/v1/query", json.dumps(query).encode())
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read())

    def endpoints(self):
        """Returns the endpoint of each followed source."""
        return {source["name"]: source["endpoint"] for source in json.loads(self.get("/v1/sources"))["sources"]}

    def end(self):
        """Ends the router. If the router fails, the message of the check has its standard error."""
        self.process.terminate()
        lines = self.process.communicate(timeout=60)[1].splitlines()
        check("the router ends", self.process.returncode == 0, "\n".join([str(self.process.returncode), *lines[:200]]))
