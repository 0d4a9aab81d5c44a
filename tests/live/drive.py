#!/usr/bin/env python3
"""A real vLLM on the CPU beside `kvcast router`: before each request the router is asked what the
engine will reuse, and the engine then says what it did reuse (`num_cached_tokens`).

The last line is one JSON object. Exit: 0, no answer that said `exact: true` differed; 1, some did;
2, the run failed; 77, there is no environment to run in (setup.sh makes one).
SPDX-License-Identifier: Apache-2.0
"""
import argparse
import collections
import json
import os
import re
import sys
import tempfile
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import engine as live_engine  # noqa: E402
import models  # noqa: E402
from router import NAME, Router  # noqa: E402
from workload import Key, Workload  # noqa: E402

SKIPPED = 77
MARK = "KVCAST_LIVE_STARTED"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", choices=models.NAMES, default="llama")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--salts", action="store_true", help="three of four requests have a cache_salt")
    parser.add_argument("--lora", action="store_true", help="two of three requests use an adapter")
    parser.add_argument("--eagle", action="store_true", help="an EAGLE draft of one layer")
    parser.add_argument("--tell", choices=("nothing", "all"), default="nothing",
                        help="what the router is told besides the endpoints")
    parser.add_argument("--connect", action="store_true",
                        help="the engine connects its publisher to tcp://127.0.0.1:PORT, the router binds")
    parser.add_argument("--blocks", type=int, default=300, help="of the engine's pool")
    parser.add_argument("--unit", type=int,
                        help="prefix_match_unit: with qwen3_next 32 gives hits inside blocks of 544")
    parser.add_argument("--kvcast", default=os.path.join(HERE, "../../build/release/bin/kvcast"))
    parser.add_argument("--venv", default=os.environ.get("KVCAST_LIVE_VENV"),
                        help="made by setup.sh (default: $KVCAST_LIVE_VENV, or this Python)")
    parser.add_argument("--overlay", help="folder made by setup.sh --overlay")
    parser.add_argument("--differences", type=int, default=10, help="so many are printed in full")
    return parser.parse_args()


def skip(why: str) -> None:
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def enter_environment(options: argparse.Namespace) -> None:
    """Goes on in the Python that has vLLM, with the variables that must be set before it starts."""
    if not os.access(options.kvcast, os.X_OK):
        skip(f"there is no program {options.kvcast} (scripts/build)")
    if MARK in os.environ:
        try:
            import vllm  # noqa: F401
        except ImportError as error:
            skip(f"vLLM cannot be imported: {error} (tests/live/setup.sh VENV)")
        return
    python = sys.executable
    if options.venv:
        python = os.path.join(options.venv, "bin", "python")
        if not os.access(python, os.X_OK):
            skip(f"there is no environment {options.venv} (tests/live/setup.sh VENV)")
    os.environ[MARK] = "1"
    live_engine.set_environment()
    if options.overlay:
        if not os.path.isdir(os.path.join(options.overlay, "vllm")):
            skip(f"there is no overlay {options.overlay} (tests/live/setup.sh VENV --overlay)")
        os.environ |= {"PYTHONPATH": options.overlay, "VLLM_TARGET_DEVICE": "cpu"}
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
        adapters=adapters, blocks=options.blocks, unit=options.unit, connects=options.connect)


def keys(options: argparse.Namespace) -> list[Key]:
    salts = [None, "tenant-a", "tenant-b", "tenant-c"] if options.salts else [None]
    names = [None, "adapter-a", "adapter-b"] if options.lora else [None]
    return [Key(salt, name) for salt in salts for name in names]


def source(options: argparse.Namespace, engine, router: Router) -> dict:
    described = {"endpoint": engine.endpoint, "replay_endpoint": engine.replay_endpoint}
    if options.connect:
        described["bind"] = True
    if options.tell == "all":
        known = router.source_members()
        described |= {name: value for name, value in engine.properties().items() if name in known}
    return described


class Report:
    def __init__(self):
        self.counts = collections.Counter(
            {name: 0 for name in ("requests", "equal", "over", "under", "hits", "keyed_hits",
                                  "over_tokens", "under_tokens", "exact", "exact_wrong")})
        self.not_exact = collections.Counter()

    def note(self, key: Key, answer: dict, reused: int) -> int:
        """What the answer promised too much."""
        excess = answer["reusable_tokens"] - reused
        counts = self.counts
        counts["requests"] += 1
        counts["hits"] += reused > 0
        counts["keyed_hits"] += reused > 0 and key != Key()
        counts["equal" if excess == 0 else "over" if excess > 0 else "under"] += 1
        counts["over_tokens"] += max(excess, 0)
        counts["under_tokens"] += max(-excess, 0)
        counts["exact"] += answer["exact"]
        counts["exact_wrong"] += answer["exact"] and excess != 0
        if not answer["exact"]:
            self.not_exact[re.sub(r"\b\d+\b", "N", answer["reason"])] += 1
        return excess


def query(request) -> dict:
    body = {"tokens": list(request.tokens), "workers": [NAME]}
    if request.key.cache_salt is not None:
        body["cache_salt"] = request.key.cache_salt
    if request.key.lora_name is not None:
        body["lora_name"] = request.key.lora_name
    return body


def drive(options: argparse.Namespace, folder: str) -> dict:
    described = engine_options(options, folder)
    engine = live_engine.Engine(described)
    router = Router(options.kvcast)
    report = Report()
    try:
        router.follow(source(options, engine, router))
        workload = Workload(options.seed, models.VOCAB, keys(options), described.longest)
        for number in range(options.requests):
            request = workload.next()
            answer = router.ask(query(request), engine.published)
            reused, output = engine.run(request)
            workload.note(request, output)
            if report.note(request.key, answer, reused) != 0:
                options.differences -= 1
                if options.differences >= 0:
                    print(f"request {number}: {len(request.tokens)} tokens, {request.key}, engine "
                          f"{reused}, router {json.dumps(answer)}", flush=True)
        state = router.worker_state()
    finally:
        status = router.stop()
        engine.stop()
    if status != 0:
        raise RuntimeError(f"the router ended with {status}")
    return report.counts | {"not_exact": dict(report.not_exact), "batches": engine.published,
                            "rejected_events": state["rejected_events"], "lost": state["lost"]}


def main() -> int:
    options = parse()
    enter_environment(options)
    import vllm

    told = {name: getattr(options, name) for name in
            ("model", "seed", "salts", "lora", "eagle", "tell", "connect", "blocks", "unit")}
    try:
        with tempfile.TemporaryDirectory(prefix="kvcast-live-") as folder:
            result = drive(options, folder)
    except Exception:
        traceback.print_exc()
        return 2
    print(json.dumps({"vllm": vllm.__version__} | told | result))
    return 1 if result["exact_wrong"] > 0 else 0


if __name__ == "__main__":
    # What vLLM leaves behind must not decide how the process ends.
    code = main()
    sys.stdout.flush()
    os._exit(code)
