"""An engine in a separate process, which can be killed. RemoteEngine has functions like `Engine`, over a pipe.

As a program, this file is the engine's process. The first line of its input has the options. The process
answers with the properties and the endpoints. Each further line is one request, and each answer is one line.
All lines are JSON.
SPDX-License-Identifier: Apache-2.0
"""
import dataclasses
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from engine import Engine, EngineOptions  # noqa: E402
from workload import Key, Request  # noqa: E402


class RemoteEngine:
    def __init__(self, options: EngineOptions):
        self._process = subprocess.Popen([sys.executable, os.path.join(HERE, "remote.py")],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.published = 0
        self._process.stdin.write(json.dumps(dataclasses.asdict(options)) + "\n")
        self._process.stdin.flush()

    def await_start(self) -> None:
        self._properties = self._answer()
        self.endpoint, self.replay_endpoint = self._properties.pop("endpoints")

    def _answer(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the engine's process ended with exit code {self._process.wait()}")
        return json.loads(line)

    def begin(self, request: Request) -> None:
        self._process.stdin.write(json.dumps(dataclasses.asdict(request)) + "\n")
        self._process.stdin.flush()

    def await_end(self) -> tuple[int, list[int]]:
        """Waits for the end of the request. Returns (num_cached_tokens, output tokens)."""
        answer = self._answer()
        self.published = answer["published"]
        return answer["reused"], answer["output"]

    def properties(self, amount: str) -> dict:
        return self._properties[amount]

    def kill(self) -> None:
        """Kills the process without an orderly shutdown, as if its machine failed."""
        self._process.kill()
        self._process.wait()


def main() -> None:
    # vLLM prints to stdout. The answers have a separate descriptor.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value: dict) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    options = json.loads(sys.stdin.readline())
    adapters = tuple(tuple(pair) for pair in options.pop("adapters"))
    ports = options.pop("ports")
    engine = Engine(EngineOptions(**options, adapters=adapters, ports=ports and tuple(ports)))
    answer({amount: engine.properties(amount) for amount in ("nothing", "needed", "all")}
           | {"endpoints": [engine.endpoint, engine.replay_endpoint]})
    for line in sys.stdin:
        request = json.loads(line)
        key = Key(**request.pop("key"))
        reused, output = engine.run(Request(**request, key=key))
        answer({"reused": reused, "output": output, "published": engine.published})


if __name__ == "__main__":
    main()
    os._exit(0)
