#!/usr/bin/python3
"""The program is built with the protections of a hardened Debian package. The example systemd unit restricts the
program. A capture file is private. Usage: hardening_test.py PROGRAM SOURCE_DIR [--files-only]
--files-only: skips the checks of the program, for a build with a sanitizer"""
# SPDX-License-Identifier: Apache-2.0
import os
import re
import socket
import subprocess
import sys
import tempfile

program, source_dir = sys.argv[1:3]
failures = []


def expect(holds, check):
    if not holds:
        failures.append(check)


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_program():
    elf = output("readelf", "--file-header", "--dynamic", "--program-headers", "--wide", program)
    expect(re.search(r"Type:\s+DYN", elf), "position-independent program")
    expect(re.search(r"FLAGS.*NOW", elf), "all symbols are bound at start")
    expect("GNU_RELRO" in elf, "relocations are read-only after the start")
    expect(re.search(r"GNU_STACK.* RW ", elf), "the stack is not executable")
    symbols = output("nm", "--dynamic", "--undefined-only", program)
    expect("__stack_chk_fail" in symbols, "stack protector")
    expect(re.search(r" __\w+_chk(@|$)", symbols, re.M), "checked functions of the C library")
    expect("__glibcxx_assert_fail" in symbols, "assertions of the C++ library")


def check_unit():
    path = os.path.join(source_dir, "examples/deploy/kvcast-router.service")
    with open(path, encoding="utf-8") as file:
        unit = file.read()
    for line in ["LimitCORE=0", "UMask=0077", "NoNewPrivileges=yes", "CapabilityBoundingSet=",
                 "SystemCallArchitectures=native", "MemoryDenyWriteExecute=yes", "ProtectSystem=strict",
                 "RestrictSUIDSGID=yes", "RestrictRealtime=yes", "ProtectClock=yes"]:
        expect(line + "\n" in unit, "unit: " + line)
    expect("MemoryMax=" in unit and "TasksMax=" in unit, "unit: bounds of memory and threads")
    if not os.path.exists("/usr/bin/systemd-analyze"):
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "kvcast-router.service")
        with open(copy, "w", encoding="utf-8") as file:
            file.write(unit.replace("/usr/bin/kvcast", "/bin/true"))
        verified = subprocess.run(["systemd-analyze", "verify", "--man=no", copy], capture_output=True, text=True)
        expect("kvcast-router" not in verified.stderr, "systemd-analyze: " + verified.stderr)


def tail_opens(capture):
    """Returns true if `kvcast tail` opens the capture file. The connection to the engine shows this."""
    with socket.create_server(("127.0.0.1", 0)) as engine:
        engine.settimeout(0.05)
        tail = subprocess.Popen([program, "tail", "--record", capture, f"tcp://127.0.0.1:{engine.getsockname()[1]}"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            while tail.poll() is None:
                try:
                    engine.accept()[0].close()
                    return True
                except TimeoutError:
                    pass
            expect(capture in tail.stderr.read(), "an error names the file")
            return False
        finally:
            tail.kill()
            tail.communicate()


def check_capture():
    """Only the owner can read a capture, and `kvcast tail` does not write a capture through a symbolic link."""
    with tempfile.TemporaryDirectory() as folder:
        capture = os.path.join(folder, "capture")
        expect(tail_opens(capture) and os.stat(capture).st_mode & 0o777 == 0o600, "a new capture is private")
        os.chmod(capture, 0o644)
        expect(tail_opens(capture) and os.stat(capture).st_mode & 0o777 == 0o600, "an old file becomes private")
        link = os.path.join(folder, "link")
        os.symlink(capture, link)
        expect(not tail_opens(link), "a symbolic link is not accepted as a capture file")


if "--files-only" not in sys.argv:
    check_program()
check_unit()
check_capture()
for failure in failures:
    print("check failed:", failure)
sys.exit(1 if failures else 0)
