"""The cases of the live suite. docs/engines.md names them.
SPDX-License-Identifier: Apache-2.0
"""
from dataclasses import dataclass

import environment

FAMILIES = ("llama", "gemma3", "gemma2", "gpt_oss", "cohere2", "mistral", "llama4", "lfm2",
            "qwen3_next")
# The models of the cases inside-*.
INSIDE = ("llama", "gemma3", "gpt_oss", "llama4", "lfm2")
# Models whose hits end inside blocks. qwen3_next has blocks of 544 tokens.
_UNIT_ARGUMENTS = {"qwen3_next": ("--unit", "32")}


@dataclass(frozen=True)
class Case:
    name: str
    arguments: tuple[str, ...]
    short: bool = False  # part of `scripts/test`
    fails: bool = False  # a fault is planted, and the run must find a difference
    releases: tuple[str, ...] | None = None  # None: all

    def runs_on(self, version: str) -> bool:
        return self.releases is None or version in self.releases


def _case(name: str, model: str, *arguments: str, requests: int = 100, flight: int = 50,
          **more) -> Case:
    return Case(name, ("--model", model, "--requests", str(requests), "--flight", str(flight),
                       *_UNIT_ARGUMENTS.get(model, ()), *arguments), **more)


def _families() -> list[Case]:
    return [_case(name, name, requests=300, flight=200) for name in FAMILIES]


def _keys() -> list[Case]:
    return [
        _case("salts", "llama", "--salts", requests=300, flight=200),
        _case("salts-gemma3", "gemma3", "--salts", requests=300, flight=200),
        _case("lora", "llama", "--lora", requests=300, flight=200),
        _case("lora-salts", "llama", "--lora", "--salts"),
    ]


def _drafts() -> list[Case]:
    """With EAGLE, vLLM 0.32 drops the last block of a hit. vLLM 0.33 hashes with lookahead, unless a
    connector is configured."""
    return [
        _case("eagle", "llama", "--eagle", requests=300, flight=200),
        _case("eagle-gemma3", "gemma3", "--eagle", requests=300, flight=200),
        # The property `eagle` is not registered. No wrong answer may be marked as exact.
        _case("eagle-untold", "llama", "--eagle", "--tell", "nothing", "--judge", "exact"),
    ]


def _streams() -> list[Case]:
    return [
        _case("resets", "gemma3", "--reset-every", "10"),
        _case("late-join", "gemma3", "--late", "50"),
        _case("router-restart", "gemma3", "--router-restart", "50"),
        Case("engine-restart", ("--model", "gemma3", "--requests", "100", "--engine-restart", "50")),
        Case("ranks", ("--model", "llama", "--requests", "50", "--ranks", "2")),
        _case("reports", "llama", "--reports"),
        _case("reports-gemma3", "gemma3", "--reports"),
        _case("publisher-connects", "llama", "--connect"),
        _case("host-memory", "llama", "--host-mib", "64", "--blocks", "80"),
    ]


def _plugin() -> list[Case]:
    """The plug-in kvcast.vllm publishes. In plugin-router-restart, the replay buffer has only ten batches, so the new
    router needs a snapshot."""
    return [
        _case("plugin", "llama", "--plugin", "--salts", requests=300, flight=200),
        _case("plugin-gemma3", "gemma3", "--plugin", "--reset-every", "50", requests=300, flight=200),
        _case("plugin-router-restart", "gemma3", "--plugin", "--router-restart", "150", "--buffer-steps", "10",
              "--tell", "all", "--tell-more", '{"reports_hits": false}', requests=300, flight=0),
        _case("plugin-connects", "llama", "--plugin", "--connect"),
        _case("plugin-hashes-only", "gemma3", "--plugin", "--hashes-only"),
        Case("plugin-ranks", ("--model", "llama", "--requests", "50", "--ranks", "2", "--plugin")),
        Case("plugin-engine-restart", ("--model", "gemma3", "--requests", "100", "--engine-restart", "50", "--plugin")),
    ]


def _inside_the_engine(model: str) -> list[Case]:
    """The plug-in, a restart of the router, two ranks, and kvcast's offloading, each with one model."""
    blocks = ("--blocks", "120") if model == "llama" else ()
    restart = ("--router-restart", "150", "--buffer-steps", "10", "--tell", "all", "--tell-more", '{"reports_hits": false}')
    return [
        _case(f"inside-plugin-{model}", model, "--plugin", requests=300, flight=200),
        _case(f"inside-restart-{model}", model, "--plugin", *restart, requests=300),
        _case(f"inside-offload-{model}", model, "--plugin", "--spec", "kvcast", "--host-mib", "64", *blocks, requests=300,
              flight=200),
        Case(f"inside-ranks-{model}", ("--model", model, "--requests", "300", "--ranks", "2", "--plugin")),
    ]


def _offload() -> list[Case]:
    """kvcast's manager with ARC and a threshold, and kvcast's cache policy under vLLM's manager."""
    return [
        _case("offload-arc", "llama", "--spec", "kvcast-arc", "--host-mib", "8", "--blocks", "80"),
        _case("offload-policy", "llama", "--spec", "kvcast-policy", "--host-mib", "8", "--blocks", "80"),
    ]


def _hashes() -> list[Case]:
    cases = []
    for algorithm in ("sha256", "sha256_cbor", "xxhash", "xxhash_cbor"):
        name = algorithm.replace("_", "-")
        cases.append(_case(f"hash-{name}", "gemma3", "--hash", algorithm, "--hash-seed", "0"))
        cases.append(_case(f"hash-{name}-unset", "gemma3", "--hash", algorithm))
        cases.append(_case(f"hash-{name}-digests", "gemma3", "--hash", algorithm, "--hash-seed", "42",
                           "--whole-digests"))
    cases.append(_case("hash-seed-untold", "gemma3", "--hash-seed", "12345"))
    return cases


def _pools() -> list[Case]:
    return [
        _case("retention-none", "gemma3", "--retention", "none"),
        _case("retention-256", "lfm2", "--retention", "256"),
        _case("told-nothing", "gemma3", "--tell", "nothing"),
        _case("told-nothing-llama4", "llama4", "--tell", "nothing", "--judge", "exact"),
        _case("told-all", "gemma3", "--tell", "all"),
    ]


def _faults() -> list[Case]:
    return [
        _case("fault-window", "gemma3", "--fault", "window", flight=0, fails=True),
        _case("fault-drop", "llama", "--fault", "drop", flight=0, fails=True),
    ]


def _short() -> list[Case]:
    def short(name: str, model: str, *arguments: str, **more) -> Case:
        return _case(f"short-{name}", model, *arguments, requests=60, short=True,
                     releases=(environment.NEWEST,), **more)

    return [
        short("llama-eagle", "llama", "--eagle", "--salts", flight=40),
        short("gemma3-resets", "gemma3", "--reset-every", "20", flight=40),
        short("qwen3_next", "qwen3_next", flight=40),
        short("fault", "llama", "--fault", "drop", flight=0, fails=True),
    ]


CASES = [*_families(), *_keys(), *_drafts(), *_streams(), *_plugin(), *(case for model in INSIDE for case in _inside_the_engine(model)), *_offload(), *_hashes(), *_pools(), *_faults(),
         *_short()]
