"""Random calls of a scheduler on offloading managers, for comparisons of managers. The module imports vLLM."""
import random
from dataclasses import dataclass, field

from vllm.v1.kv_offload.base import LookupResult, ReqContext, make_offload_key

GROUPS = 2
BLOCK = 16  # tokens of a chunk
_DEPTH = 12  # chunks of the longest prompt
_LETTERS = {LookupResult.MISS: "M", LookupResult.HIT: "H", LookupResult.HIT_PENDING: "P", LookupResult.RETRY: "R"}


@dataclass
class Request:
    number: int
    contexts: list[ReqContext]  # one for each side; see CallDriver
    ends: dict[bytes, int]  # key: tokens of the prefix that ends with its chunk


@dataclass
class Call:
    name: str  # a method of managers
    request: Request | None = None
    keys: list[bytes] = field(default_factory=list)
    success: bool = True


class CallDriver:
    """Chooses calls. The prompts of the requests share prefixes. A side is one manager; each request has a
    context for each side.

    For each call, the user calls `next`, then `make` for each side, and then `note` with the result."""

    def __init__(self, seed: int, sides: int):
        self._random = random.Random(seed)
        self._sides = sides
        self._running: list[Request] = []
        self._stores: list[Call] = []
        self._loads: list[Call] = []
        self.ends: dict[bytes, int] = {}  # of all requests
        self._made = 0

    def next(self) -> Call:
        draw = self._random.random()
        if not self._running or draw < 0.1:
            return self._start()
        request = self._random.choice(self._running)
        if draw < 0.35:
            return Call("lookup", request, self._part(request))
        if draw < 0.58:
            return Call("prepare_store", request, self._part(request))
        if draw < 0.68 and self._stores:
            return self._end_store()
        if draw < 0.78:
            return Call("prepare_load", request, self._part(request))
        if draw < 0.84 and self._loads:
            load = self._loads.pop(self._random.randrange(len(self._loads)))
            return Call("complete_load", load.request, load.keys)
        if draw < 0.92:
            self._running.remove(request)
            return Call("on_request_finished", request)
        if draw < 0.96:
            return Call("take_events")
        if draw < 0.998:
            return Call("get_stats")
        self._stores.clear()
        self._loads.clear()
        return Call("reset_cache")

    def _start(self) -> Call:
        self._made += 1
        trunk, depth = self._random.randrange(4), self._random.randint(1, _DEPTH)
        branch, fork = self._random.choice((0, 0, self._made)), self._random.randrange(depth + 1)
        ends = {}
        for group in range(GROUPS):
            for i in range(depth):
                digest = f"{trunk}/{branch if i >= fork else 0}/{i}".encode().ljust(32, b".")
                ends[bytes(make_offload_key(digest, group))] = (i + 1) * BLOCK
        contexts = [ReqContext(f"r{self._made}") for _ in range(self._sides)]
        for context in contexts:
            for key, end in ends.items():
                context.set_offload_key_position(key, end)
        self.ends |= ends
        self._running.append(Request(self._made, contexts, ends))
        return Call("on_new_request", self._running[-1])

    def _part(self, request: Request) -> list[bytes]:
        """Return up to eight consecutive keys of a request. They may belong to two groups."""
        keys = list(request.ends)
        start = self._random.randrange(len(keys))
        return keys[start:start + self._random.randint(1, 8)]

    def _end_store(self) -> Call:
        store = self._stores.pop(self._random.randrange(len(self._stores)))
        keys = store.keys
        if len(keys) > 1 and self._random.random() < 0.2:
            self._stores.append(Call(store.name, store.request, keys[1:]))
            keys = keys[:1]
        return Call("complete_store", store.request, keys, self._random.random() < 0.9)

    def make(self, call: Call, manager, side: int):
        """Make the call, and return its result in a form that can be compared. prepare_load loads only
        the keys that lookup finds."""
        context = call.request and call.request.contexts[side]
        if call.name == "lookup":
            return "".join(_LETTERS[manager.lookup(key, context)] for key in call.keys)
        if call.name == "prepare_store":
            plan = manager.prepare_store(call.keys, context)
            return plan and (plan.keys_to_store, plan.store_spec.block_ids.tolist(), plan.evicted_keys)
        if call.name == "prepare_load":
            keys = [key for key in call.keys if manager.lookup(key, context) == LookupResult.HIT]
            return (keys, manager.prepare_load(keys, context).block_ids.tolist()) if keys else None
        if call.name == "complete_store":
            return manager.complete_store(call.keys, context, call.success)
        if call.name == "take_events":
            return [(event.keys, event.medium, event.removed, getattr(event, "metadata_only", False))
                    for event in manager.take_events()]
        if call.name == "get_stats":
            return manager.get_stats().data
        if call.name == "complete_load":
            return manager.complete_load(call.keys, context)
        if call.name == "reset_cache":
            return manager.reset_cache()
        getattr(manager, call.name)(context)  # on_new_request, on_request_finished
        return None

    def note(self, call: Call, result) -> None:
        """Note the result of a call, for later calls."""
        if call.name in ("prepare_store", "prepare_load") and result and result[0]:
            jobs = self._stores if call.name == "prepare_store" else self._loads
            jobs.append(Call(call.name, call.request, result[0]))
