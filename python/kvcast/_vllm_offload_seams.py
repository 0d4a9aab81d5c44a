"""Checks that vLLM's offloading is as the plug-in expects. The checks import vLLM."""
import importlib
import inspect
from dataclasses import fields

from . import _vllm_offload_calls
from . import vllm as _plugin

_METHODS = {"lock", "lookup", "get_load_source", "prepare_load", "touch", "complete_load", "prepare_store",
            "complete_store", "on_new_request", "on_request_finished", "take_events", "on_schedule_end",
            "has_pending_work", "reset_cache", "on_reset_flushed", "get_stats", "config_info", "shutdown"}
_POLICY_METHODS = {"get", "insert", "remove", "touch", "on_store_miss", "on_request_access", "on_request_finished",
                   "evict", "clear", "mark_evictable", "mark_non_evictable"}
_EVENT_FIELDS = {"keys", "medium", "removed", "locality", "ownership", "removal_expected", "metadata_only"}


class SeamError(Exception):
    """A part of vLLM is not as the plug-in expects. The text names the part."""


def version() -> str:
    return _plugin._version()


def note() -> str:
    """Return a text about the release, for the log line at the start."""
    return _plugin.note_of(version())


def _public(kind) -> set[str]:
    return {name for name in vars(kind) if not name.startswith("_")}


def _module(name: str):
    return importlib.import_module("vllm.v1.kv_offload." + name)


def rules_of_policy() -> str:
    """Return the release whose rules kvcast follows. The interface of vLLM's cache policies determines
    the release. Raises RuntimeError for an unknown interface."""
    policy = _module("cpu.policies.base").CachePolicy
    unknown = _public(policy) - _POLICY_METHODS
    arguments = list(inspect.signature(policy.insert).parameters)
    if not unknown and "on_request_finished" in vars(policy):
        if arguments == ["self", "key", "chunk"] and "on_request_access" not in vars(policy):
            return "v0.32"
        if arguments == ["self", "key", "chunk", "req_context"] and "on_request_access" in vars(policy):
            return "v0.33"
    raise RuntimeError(f"vLLM {version()}: unknown interface of cache policies; tested: {', '.join(_plugin.TESTED)}")


def check() -> str:
    """Return the release whose rules kvcast follows. Raises SeamError if a part of vLLM's manager differs from
    what kvcast's manager expects, or if the managers answer the same calls differently."""
    try:
        return _compare_managers()
    except SeamError:
        raise
    except Exception as error:  # a part is missing, or has other arguments
        raise SeamError(f"{type(error).__name__}: {error}") from error


def _compare_managers() -> str:
    base = _module("base")
    if unknown := _public(base.OffloadingManager) - _METHODS:
        raise SeamError(f"vLLM's OffloadingManager has unknown methods: {', '.join(sorted(unknown))}")
    if unknown := {field.name for field in fields(base.OffloadingEvent)} - _EVENT_FIELDS:
        raise SeamError(f"vLLM's OffloadingEvent has unknown fields: {', '.join(sorted(unknown))}")
    try:
        rules = rules_of_policy()
    except RuntimeError as error:
        raise SeamError(str(error)) from None
    for policy in ("lru", "arc"):
        for threshold in (0, 2):
            pair = make_pair(policy, threshold, rules, chunks=10)  # few chunks, so that many are evicted
            if difference := first_difference(policy, threshold, rules, seed=2, calls=2000, pair=pair):
                raise SeamError(f"policy {policy}, {difference}")
    return rules


def make_pair(policy: str, threshold: int, rules: str, chunks: int, tracked: int = 64):
    """Return vLLM's manager and kvcast's manager with equal options."""
    from ._vllm_offload import KvcastOffloadingManager

    theirs = _module("cpu.manager").CPUOffloadingManager(
        num_chunks=chunks, cache_policy=policy, enable_events=True, store_threshold=threshold, max_tracker_size=tracked)
    return theirs, KvcastOffloadingManager(chunks, _vllm_offload_calls.GROUPS, policy, True, threshold, tracked, rules)


def first_difference(policy: str, threshold: int, rules: str, seed: int, calls: int, pair=None) -> str | None:
    """Make `calls` random calls on vLLM's manager and on kvcast's, and return a text about the first
    call with different results, or None. pair: the two managers (default: the managers that make_pair returns)."""
    theirs, own = pair or make_pair(policy, threshold, rules, chunks=24)
    driver = _vllm_offload_calls.CallDriver(seed, sides=2)
    for number in range(calls):
        call = driver.next()
        their_result, own_result = driver.make(call, theirs, 0), driver.make(call, own, 1)
        if their_result != own_result:
            return f"call {number} ({call.name}): vLLM's manager returns {their_result}, kvcast's manager {own_result}"
        driver.note(call, their_result)
    return None
