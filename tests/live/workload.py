"""Requests that share prefixes. A request starts a conversation after a system prompt, or continues,
branches, shortens or repeats an earlier conversation. A repeated conversation may have another key.

The seed and the tokens that the engine generates determine all requests.
SPDX-License-Identifier: Apache-2.0
"""
import random
from dataclasses import dataclass


@dataclass(frozen=True)
class Key:
    """The inputs of a cache entry besides the tokens."""
    cache_salt: str | None = None
    lora_name: str | None = None


@dataclass(frozen=True)
class Request:
    tokens: tuple[int, ...]
    key: Key
    max_tokens: int
    reports: bool = False  # kv_cache_report_mode "full": the engine announces the blocks that it reuses


class Workload:
    def __init__(self, seed: int, vocab: int, keys: list[Key], longest: int, reports: bool = False):
        self._random = random.Random(seed)
        self._vocab = vocab
        self._keys = keys
        self._longest = longest
        self._reports = reports
        # System prompts. One system prompt is shorter than a block.
        self._heads = [self._text(length) for length in (20, 96, 150, 320)]
        self._past: list[Request] = []

    def _text(self, length: int) -> tuple[int, ...]:
        return tuple(self._random.randrange(3, self._vocab) for _ in range(length))

    def _prompt(self) -> tuple[tuple[int, ...], Key]:
        pick = self._random
        chance = pick.random()
        if not self._past or chance < 0.3:
            return pick.choice(self._heads) + self._text(pick.randrange(1, 200)), pick.choice(self._keys)
        # Early requests are chosen less often than late requests, because their blocks may be evicted.
        past = self._past[-1 - int(len(self._past) * pick.random() ** 2)]
        if chance < 0.65:
            return past.tokens + self._text(pick.randrange(1, 120)), past.key
        if chance < 0.8:
            cut = pick.randrange(1, len(past.tokens) + 1)
            return past.tokens[:cut] + self._text(pick.randrange(0, 60)), past.key
        if chance < 0.9:
            return past.tokens, past.key
        return past.tokens, pick.choice(self._keys)

    def next(self) -> Request:
        tokens, key = self._prompt()
        if len(tokens) > self._longest:
            tokens = self._random.choice(self._heads) + self._text(50)
        max_tokens = self._random.choice((1, 1, 4, 24))
        reports = self._reports and self._random.random() < 0.5
        return Request(tokens, key, max_tokens, reports)

    def note(self, request: Request, output: list[int]) -> None:
        """Adds the tokens of the request and its output to the conversations that later requests continue."""
        self._past.append(Request(request.tokens + tuple(output), request.key, 0))
