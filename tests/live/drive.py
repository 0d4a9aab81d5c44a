#!/usr/bin/env python3
"""Runs a real vLLM on the CPU beside `kvcast router`. Compares the number of tokens that the router
predicts with the number of tokens that the engine reuses.

The last line is one JSON object. Exit code: 0, no answer differs; 1, an answer differs, or no token was
reused; 2, the run failed; 77, the environment is missing (`scripts/test --live` makes it).
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import os
import shutil
import sys
import tempfile
import traceback
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import engine as live_engine  # noqa: E402
import environment  # noqa: E402
import models  # noqa: E402

MARK = "KVCAST_LIVE_STARTED"
PLUGIN = "KVCAST_LIVE_PLUGIN"  # the folder of the unpacked wheel
HASHES = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", choices=models.NAMES, default="llama")
    parser.add_argument("--vllm", default=environment.compiled_version(),
                        help="release (default: %(default)s, the compiled release; other releases are overlays)")
    parser.add_argument("--requests", type=int, default=300,
                        help="requests one at a time; the router is asked before each request")
    parser.add_argument("--flight", type=int, default=0,
                        help="further requests, eight in flight; the router is asked inside the engine's lookup")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--salts", action="store_true", help="three of four requests have a cache_salt")
    parser.add_argument("--lora", action="store_true", help="two of three requests use an adapter")
    parser.add_argument("--eagle", action="store_true", help="an EAGLE draft of one layer")
    parser.add_argument("--reports", action="store_true",
                        help="half of the requests have kv_cache_report_mode full")
    parser.add_argument("--reset-every", type=int, default=0, help="requests between resets")
    parser.add_argument("--late", type=int, default=0, help="the router joins after this number of requests")
    parser.add_argument("--router-restart", type=int, default=0,
                        help="the router is restarted after this number of requests")
    parser.add_argument("--engine-restart", type=int, default=0,
                        help="the engine's process is killed and started again after this number of requests")
    parser.add_argument("--ranks", type=int, default=1, help="data-parallel ranks; each rank is a process")
    parser.add_argument("--hash", choices=HASHES, help="prefix_caching_hash_algo")
    parser.add_argument("--hash-seed", help="PYTHONHASHSEED of the engine (default: unset)")
    parser.add_argument("--whole-digests", action="store_true", help="events carry whole hashes of 16 or 32 bytes")
    parser.add_argument("--retention", default="default",
                        help="prefix_cache_retention_interval: none, or a number of tokens")
    parser.add_argument("--host-mib", type=int, default=0,
                        help="host memory of the offloading connector, in MiB; 0: no connector")
    parser.add_argument("--spec", choices=("vllm", "kvcast", "kvcast-arc", "kvcast-policy"), default="vllm",
                        help="the manager, copies or cache policy of the connector; all but vllm need a wheel")
    parser.add_argument("--tell", choices=("nothing", "needed", "all"), default="needed",
                        help="members of the source that are set; needed: the members that the events do not show in time")
    parser.add_argument("--tell-more", type=json.loads, default={}, metavar="JSON",
                        help="further members of the source")
    parser.add_argument("--judge", choices=("all", "exact"), default="all",
                        help="answers that must not differ: all, or only the exact answers")
    parser.add_argument("--fault", choices=("window", "drop"),
                        help="window: each window is registered with half of its size; drop: the first store from a "
                             "root is not published")
    parser.add_argument("--connect", action="store_true",
                        help="the engine connects its publisher to tcp://127.0.0.1:PORT, and the router binds")
    parser.add_argument("--blocks", type=int, default=300, help="blocks of the engine's pool")
    parser.add_argument("--unit", type=int,
                        help="prefix_match_unit; with qwen3_next, 32 gives hits inside the blocks of 544 tokens")
    parser.add_argument("--plugin", action="store_true",
                        help="kvcast.vllm publishes, in place of vLLM's publisher; needs a wheel (scripts/wheel)")
    parser.add_argument("--hashes-only", action="store_true", help="the plug-in publishes no token ids")
    parser.add_argument("--wheels", default=os.path.join(HERE, "../../build/wheels"), help="folder of the wheel")
    parser.add_argument("--buffer-steps", type=int, default=10000, help="batches that a replay can return")
    parser.add_argument("--record", metavar="FILE", help="write the run as a scenario of kvcast conformance")
    parser.add_argument("--kvcast", default=os.path.join(HERE, "../../build/release/bin/kvcast"))
    parser.add_argument("--differences", type=int, default=10, help="number of differences that are printed in full")
    return parser


def enter_environment(options: argparse.Namespace) -> None:
    """Starts this program again, in the Python that has vLLM, with the environment variables that vLLM needs."""
    if not os.access(options.kvcast, os.X_OK):
        environment.skip(f"the program {options.kvcast} does not exist (scripts/build release kvcast builds it)")
    if MARK in os.environ:
        return
    if why := environment.missing(options.vllm):
        environment.skip(why)
    os.environ[MARK] = "1"
    live_engine.set_environment()
    os.environ.pop("PYTHONHASHSEED", None)
    if options.hash_seed is not None:
        os.environ["PYTHONHASHSEED"] = options.hash_seed
    os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = "0" if options.whole_digests else "1"
    environment.choose(options.vllm, [HERE, *plugin_folder(options)])
    python = environment.python()
    os.execv(python, [python, *sys.argv])


def plugin_folder(options: argparse.Namespace) -> list[str]:
    """Unpacks the wheel of kvcast. vLLM then finds the entry point of the plug-in on PYTHONPATH."""
    if not options.plugin and options.spec == "vllm":
        return []
    wheel = environment.wheel(options.wheels)
    if wheel is None:
        environment.skip(f"{options.wheels} has no wheel for {environment.python()} (scripts/wheel builds it)")
    folder = tempfile.mkdtemp(prefix="kvcast-live-plugin-")
    zipfile.ZipFile(wheel).extractall(folder)
    os.environ[PLUGIN] = folder
    if options.plugin:
        os.environ |= {"KVCAST_VLLM_PUBLISHER": "1", "KVCAST_VLLM_HASHES_ONLY": str(int(options.hashes_only))}
    return [folder]


def engine_options(options: argparse.Namespace, folder: str) -> live_engine.EngineOptions:
    def path_of(name):
        return os.path.join(folder, name)
    adapters = ()
    if options.lora:
        adapters = tuple((name, models.write_adapter(options.model, path_of(name), number))
                         for number, name in enumerate(("adapter-a", "adapter-b")))
    return live_engine.EngineOptions(
        model=models.write(options.model, path_of(options.model)),
        draft=models.write("eagle_llama", path_of("draft")) if options.eagle else None,
        adapters=adapters, blocks=options.blocks, unit=options.unit, connects=options.connect,
        hash_algorithm=options.hash, retention=options.retention,
        host_bytes=options.host_mib << 20, spec=options.spec, buffer_steps=options.buffer_steps, plugin=options.plugin)


def main() -> int:
    options = parser().parse_args()
    options.kvcast = os.path.abspath(options.kvcast)
    if options.record:
        options.record = os.path.abspath(options.record)
    enter_environment(options)
    import vllm

    if vllm.__version__ != options.vllm:
        environment.skip(f"vLLM {vllm.__version__} is installed, not {options.vllm}")
    import runs

    given = {name: value for name, value in vars(options).items()
            if value != parser().get_default(name) and name not in ("kvcast", "differences", "wheels")}
    try:
        with tempfile.TemporaryDirectory(prefix="kvcast-live-") as folder:
            # vLLM hashes the path of an adapter. A relative path is the same in each run.
            os.chdir(folder)
            engine_settings = engine_options(options, ".")
            remote = options.ranks > 1 or options.engine_restart > 0
            run = (runs.Processes if remote else runs.InProcess)(options, engine_settings)
            result = run.drive()
    except Exception:
        traceback.print_exc()
        return 2
    finally:
        if PLUGIN in os.environ:
            shutil.rmtree(os.environ[PLUGIN], ignore_errors=True)
    failures = run.report.failures(options.judge, options.salts or options.lora)
    print(json.dumps({"vllm": vllm.__version__, "model": options.model} | given | result
                     | {"failures": failures}))
    return 1 if failures else 0


if __name__ == "__main__":
    # os._exit: threads and exit handlers of vLLM must not change the exit code.
    code = main()
    sys.stdout.flush()
    os._exit(code)
