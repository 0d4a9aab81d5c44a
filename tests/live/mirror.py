"""Compares the blocks that the published events announce with the blocks of the engine's pool. If the router's
prediction differs from the engine's lookup, the comparison shows whether the event stream or the router is wrong.
SPDX-License-Identifier: Apache-2.0
"""
import collections


def hash_in_events(block_hash: bytes):
    """Converts a block hash of the engine to the form that the published events use."""
    from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

    return maybe_convert_block_hash(block_hash)


def held_by_pool(manager) -> collections.Counter:
    """For each (group, hash): returns the number of cached blocks in the engine's pool."""
    from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id

    held = collections.Counter()
    for key, blocks in manager.block_pool.cached_block_hash_to_block._cache.items():
        count = len(blocks) if isinstance(blocks, dict) else 1
        held[get_group_id(key), hash_in_events(get_block_hash(key))] += count
    return held


class Mirror:
    """For each (group, hash): the number of stored blocks minus the number of removed blocks, since the latest
    AllBlocksCleared. Counts only events whose medium is GPU or is missing."""

    def __init__(self):
        self.held = collections.Counter()

    def note(self, batch) -> None:
        for event in batch.events:
            kind = type(event).__name__
            if kind == "AllBlocksCleared":
                self.held.clear()
            elif getattr(event, "medium", None) in (None, "GPU"):
                sign = 1 if kind == "BlockStored" else -1
                for name in event.block_hashes:
                    self.held[event.group_idx or 0, name] += sign

    def explain(self, manager, request, pending: list) -> str:
        """Returns the reason why the router's prediction differed from the engine's lookup."""
        if pending:
            kinds = collections.Counter(type(event).__name__ for event in pending)
            return "lag: events that are not published yet: " + ", ".join(f"{n} {k}" for k, n in kinds.items())
        pool = held_by_pool(manager)
        stream = +self.held
        if stream == pool:
            return "the announced blocks equal the held blocks, so the router is wrong; held blocks of the prompt, by group: " + \
                self._presence(manager, request, stream)
        only_stream, only_pool = stream - pool, pool - stream
        return (f"the announced blocks differ from the held blocks: {sum(only_stream.values())} announced blocks are not "
                f"held, {sum(only_pool.values())} held blocks are not announced; announced blocks of "
                f"the prompt, by group: {self._presence(manager, request, stream)}; held blocks: "
                f"{self._presence(manager, request, pool)}")

    @staticmethod
    def _presence(manager, request, held) -> str:
        names = [hash_in_events(block_hash) for block_hash in request.block_hashes]
        return " ".join("".join("x" if held[group, name] else "." for name in names) or "-"
                        for group in range(manager.num_kv_cache_groups))
