#!/usr/bin/env python3
"""Adds the licences of the libraries in a wheel.

usage: add_licences.py WHEEL OUTPUT_FOLDER

auditwheel has put the shared libraries into the folder kvcast.libs of the wheel. For each library, this program finds the
Debian package, and adds the package's copyright file to dist-info/licenses. It also adds the copyright files of the
libraries in COMPILED_IN, and the licences of kvcast and pybind11. It fails if a licence is missing.
SPDX-License-Identifier: Apache-2.0
"""
import importlib.metadata
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Debian packages whose code is compiled into the extension: headers, static libraries and embedded files.
COMPILED_IN = ("cppzmq-dev", "libmsgpack-cxx-dev", "nlohmann-json3-dev", "libabsl-dev", "libjs-chart.js", "libxxhash-dev")


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def package_of(library):
    """The Debian package of a bundled file such as libzmq-0123abcd.so.5.2.4."""
    soname = re.sub(r"-[0-9a-f]{8}(?=\.)", "", library)
    stem = soname.split(".so")[0] + ".so"
    for line in run("dpkg-query", "-S", f"*/{soname}").splitlines():
        package = line.split(":")[0]
        if not package.endswith("-dev") and line.rsplit("/", 1)[1].startswith(stem):
            return package
    raise SystemExit(f"add_licences: no Debian package contains {soname}")


def copyright_of(package):
    path = pathlib.Path("/usr/share/doc") / package / "copyright"
    if not path.exists():
        raise SystemExit(f"add_licences: {path} is missing")
    return path.read_text(encoding="utf-8", errors="replace")


def main():
    wheel, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        run(sys.executable, "-m", "wheel", "unpack", str(wheel), "-d", folder)
        tree = next(pathlib.Path(folder).iterdir())
        info = next(tree.glob("*.dist-info"))
        licences = info / "licenses"
        licences.mkdir(exist_ok=True)
        shutil.copy(ROOT / "LICENSE", licences / "LICENSE")
        lines = ["This wheel contains code of these libraries. The folder has the licence of each.", ""]
        pybind11 = importlib.metadata.distribution("pybind11")
        (text,) = [path.read_text() for path in pybind11.files or [] if path.name == "LICENSE"]
        (licences / "pybind11.txt").write_text(text, encoding="utf-8")
        lines.append(f"pybind11 {pybind11.version}: pybind11.txt")
        libraries = sorted(path.name for path in tree.glob("kvcast.libs/*"))
        packages = {package_of(name) for name in libraries} | set(COMPILED_IN)
        for package in sorted(packages):
            (licences / f"{package}.txt").write_text(copyright_of(package), encoding="utf-8")
            version = run("dpkg-query", "-W", "-f=${source:Package} ${source:Version}", package)
            lines.append(f"{package} (source package {version}): {package}.txt")
        (licences / "NOTICE").write_text("\n".join(lines) + "\n", encoding="utf-8")
        run(sys.executable, "-m", "wheel", "pack", str(tree), "-d", str(output))
    print(output / wheel.name)


if __name__ == "__main__":
    main()
