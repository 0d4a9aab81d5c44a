"""A nats-server with JetStream in a process of its own, for tests.
SPDX-License-Identifier: Apache-2.0
"""
import atexit
import pathlib
import shutil
import socket
import subprocess
import sys

from router_process import until

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from ports import free_ports  # noqa: E402

PROGRAM = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/sbin")


class NatsServer:
    """The messages stay in `folder` if the server is killed. `config`: more lines of its configuration file."""

    def __init__(self, folder, config=""):
        self.folder, self.port = pathlib.Path(folder), free_ports(1)[0]
        self.url = f"nats://localhost:{self.port}"
        self.folder.mkdir(exist_ok=True)
        (self.folder / "server.conf").write_text(
            f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{self.folder}" }}\n{config}', encoding="ascii")

    def start(self):
        log = (self.folder / "log").open("ab")
        self.process = subprocess.Popen([PROGRAM, "-c", self.folder / "server.conf"], stdout=log, stderr=log)
        atexit.register(self.process.kill)
        until("the NATS server listens", self.listens)
        return self

    def listens(self):
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self):
        self.process.kill()
        self.process.wait(60)
