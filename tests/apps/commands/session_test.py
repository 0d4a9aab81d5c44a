#!/usr/bin/env python3
"""Runs the ```console blocks of a Markdown file and compares their output. A line of the file that
begins with "$ " is a command, and the lines after it are its output. "..." in the output matches
any text. A command that ends with " &" runs until the end of the test. A service may need some time
until it gives the expected answer, so the test repeats a command for up to a minute.
usage: session_test.py KVCAST MARKDOWN...; exit code 77: curl is not installed
# SPDX-License-Identifier: Apache-2.0
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from ports import free_ports

KVCAST = sys.argv[1]
PATIENCE_S = 60


def commands(text):
    """Returns (command, expected output) of all console blocks."""
    for block in re.findall(r"^```console\n(.*?)^```", text, re.M | re.S):
        for step in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, printed = step.partition("\n")
            yield command, printed


def matches(wanted, printed):
    pattern = ".*".join(re.escape(part) for part in wanted.split("..."))
    return re.fullmatch(pattern, printed, re.S) is not None


def run(command, environment, folder):
    return subprocess.run(["bash", "-c", command], env=environment, cwd=folder, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE_S).stdout


def session(path, folder):
    """Returns the number of failures and the number of commands."""
    with open(path, encoding="utf-8") as file:
        text = file.read().replace("8080", str(free_ports(1)[0]))
    environment = {**os.environ, "PATH": os.path.dirname(os.path.abspath(KVCAST)) + ":" + os.environ["PATH"]}
    environment.pop("http_proxy", None)
    background, failures, count = [], 0, 0
    try:
        for command, wanted in commands(text):
            count += 1
            if command.endswith(" &"):
                with open(os.path.join(folder, f"log{count}"), "w", encoding="utf-8") as log:
                    background.append(subprocess.Popen(["bash", "-c", "exec " + command[:-2]], env=environment,
                                                       cwd=folder, stdout=log, stderr=log))
                continue
            deadline = time.time() + PATIENCE_S
            printed = run(command, environment, folder)
            while not matches(wanted, printed) and time.time() < deadline:
                time.sleep(0.1)
                printed = run(command, environment, folder)
            if not matches(wanted, printed):
                failures += 1
                print(f"FAILED: {command}\n  expected: {wanted}\n  printed: {printed}")
    finally:
        for process in background:
            process.send_signal(signal.SIGINT)
        for process in background:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                failures += 1
                process.kill()
                print("FAILED: a background process does not end")
    return failures, count


if not shutil.which("curl"):
    print("skipped: curl is not installed")
    sys.exit(77)
failed = 0
for markdown in sys.argv[2:]:
    with tempfile.TemporaryDirectory() as scratch:
        wrong, ran = session(markdown, scratch)
        failed += wrong + (ran == 0)
        print(f"{markdown}: {ran} commands, {wrong} failed")
sys.exit(failed > 0)
