#!/usr/bin/env python3
"""A real vLLM on the CPU beside `kvcast router`: the router is asked what the engine will reuse, and
the engine says what it did reuse.

The last line is one JSON object. Exit: 0, no answer differed; 1, some did; 2, the run failed; 77,
there is no environment to run in (`scripts/test --live` makes one).
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import json
import os
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import engine as live_engine  # noqa: E402
import environment  # noqa: E402
import models  # noqa: E402

MARK = "KVCAST_LIVE_STARTED"
HASHES = ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", choices=models.NAMES, default="llama")
    parser.add_argument("--vllm", default=environment.compiled_version(),
                        help="release (default: %(default)s, the compiled one; others are overlays)")
    parser.add_argument("--requests", type=int, default=300, help="one at a time, asked before")
    parser.add_argument("--flight", type=int, default=0,
                        help="so many more with eight in flight, asked inside the engine's lookup")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--salts", action="store_true", help="three of four requests have a cache_salt")
    parser.add_argument("--lora", action="store_true", help="two of three requests use an adapter")
    parser.add_argument("--eagle", action="store_true", help="an EAGLE draft of one layer")
    parser.add_argument("--reports", action="store_true",
                        help="half of the requests have kv_cache_report_mode full")
    parser.add_argument("--reset-every", type=int, default=0, help="requests between resets")
    parser.add_argument("--late", type=int, default=0, help="the router joins after so many requests")
    parser.add_argument("--router-restart", type=int, default=0, help="after so many requests")
    parser.add_argument("--engine-restart", type=int, default=0,
                        help="the engine's process is killed after so many requests")
    parser.add_argument("--ranks", type=int, default=1, help="data-parallel ranks, a process each")
    parser.add_argument("--hash", choices=HASHES, help="prefix_caching_hash_algo")
    parser.add_argument("--hash-seed", help="PYTHONHASHSEED of the engine (default: unset)")
    parser.add_argument("--whole-digests", action="store_true", help="events carry 16 or 32 bytes a hash")
    parser.add_argument("--retention", default="default", help="none, or tokens")
    parser.add_argument("--host-mib", type=int, default=0, help="of the offloading connector")
    parser.add_argument("--tell", choices=("nothing", "needed", "all"), default="needed",
                        help="what the router is told: needed is what no event says")
    parser.add_argument("--tell-more", type=json.loads, default={}, metavar="JSON",
                        help="members of the source besides")
    parser.add_argument("--judge", choices=("all", "exact"), default="all",
                        help="which answers must not differ: all, or those that say exact")
    parser.add_argument("--fault", choices=("window", "drop"),
                        help="half of the windows told; the first store from a root is not published")
    parser.add_argument("--connect", action="store_true",
                        help="the engine connects its publisher to tcp://127.0.0.1:PORT, the router binds")
    parser.add_argument("--blocks", type=int, default=300, help="of the engine's pool")
    parser.add_argument("--unit", type=int,
                        help="prefix_match_unit: with qwen3_next 32 gives hits inside blocks of 544")
    parser.add_argument("--record", metavar="FILE", help="the run as a scenario of kvcast conformance")
    parser.add_argument("--kvcast", default=os.path.join(HERE, "../../build/release/bin/kvcast"))
    parser.add_argument("--differences", type=int, default=10, help="so many are printed in full")
    return parser


def enter_environment(options: argparse.Namespace) -> None:
    """Goes on in the Python that has vLLM, with the variables that must be set before it starts."""
    if not os.access(options.kvcast, os.X_OK):
        environment.skip(f"there is no program {options.kvcast} (scripts/build release kvcast)")
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
    environment.choose(options.vllm, [HERE])
    python = environment.python()
    os.execv(python, [python, *sys.argv])


def engine_options(options: argparse.Namespace, folder: str) -> live_engine.EngineOptions:
    def at(name):
        return os.path.join(folder, name)
    adapters = ()
    if options.lora:
        adapters = tuple((name, models.write_adapter(options.model, at(name), number))
                         for number, name in enumerate(("adapter-a", "adapter-b")))
    return live_engine.EngineOptions(
        model=models.write(options.model, at(options.model)),
        draft=models.write("eagle_llama", at("draft")) if options.eagle else None,
        adapters=adapters, blocks=options.blocks, unit=options.unit, connects=options.connect,
        hash_algorithm=options.hash, retention=options.retention,
        host_bytes=options.host_mib << 20)


def main() -> int:
    options = parser().parse_args()
    options.kvcast = os.path.abspath(options.kvcast)
    if options.record:
        options.record = os.path.abspath(options.record)
    enter_environment(options)
    import vllm

    if vllm.__version__ != options.vllm:
        environment.skip(f"vLLM {vllm.__version__} is there, not {options.vllm}")
    import runs

    told = {name: value for name, value in vars(options).items()
            if value != parser().get_default(name) and name not in ("kvcast", "differences")}
    try:
        with tempfile.TemporaryDirectory(prefix="kvcast-live-") as folder:
            # The path of an adapter is hashed: relative, it is the same in each run.
            os.chdir(folder)
            described = engine_options(options, ".")
            remote = options.ranks > 1 or options.engine_restart > 0
            run = (runs.Processes if remote else runs.InProcess)(options, described)
            result = run.drive()
    except Exception:
        traceback.print_exc()
        return 2
    failures = run.report.failures(options.judge, options.salts or options.lora)
    print(json.dumps({"vllm": vllm.__version__, "model": options.model} | told | result
                     | {"failures": failures}))
    return 1 if failures else 0


if __name__ == "__main__":
    # What vLLM leaves behind must not decide how the process ends.
    code = main()
    sys.stdout.flush()
    os._exit(code)
