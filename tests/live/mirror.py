"""Compares the blocks that the published events announce with the blocks of the engine's pool. The
comparison explains why a prediction differs.
SPDX-License-Identifier: Apache-2.0
"""
import collections


def external(name: bytes):
    """Returns a hash in the form of the events."""
    from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash

    return maybe_convert_block_hash(name)


def held_by_pool(manager) -> collections.Counter:
    """Returns the number of blocks in the pool by (group, hash)."""
    from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id

    held = collections.Counter()
    for key, blocks in manager.block_pool.cached_block_hash_to_block._cache.items():
        count = len(blocks) if isinstance(blocks, dict) else 1
        held[get_group_id(key), external(get_block_hash(key))] += count
    return held


class Mirror:
    """Counts the stores minus the removes of the GPU since the latest AllBlocksCleared, by (group, hash)."""

    def __init__(self):
        self.held = collections.Counter()
        self.cleared = 0

    def note(self, batch) -> None:
        for event in batch.events:
            kind = type(event).__name__
            if kind == "AllBlocksCleared":
                self.held.clear()
                self.cleared += 1
            elif getattr(event, "medium", None) in (None, "GPU"):
                sign = 1 if kind == "BlockStored" else -1
                for name in event.block_hashes:
                    self.held[event.group_idx or 0, name] += sign

    def explain(self, manager, request, pending: list) -> str:
        """Returns the reason why the prediction of a lookup differed."""
        if pending:
            kinds = collections.Counter(type(event).__name__ for event in pending)
            return "lag: events that are not published yet: " + ", ".join(f"{n} {k}" for k, n in kinds.items())
        pool = held_by_pool(manager)
        stream = +self.held
        if stream == pool:
            return "the stream equals the pool, so the router is wrong; held blocks of the prompt, by group: " + \
                self._presence(manager, request, stream)
        only_stream, only_pool = stream - pool, pool - stream
        return (f"the stream differs from the pool: {sum(only_stream.values())} announced blocks are not "
                f"held, {sum(only_pool.values())} held blocks are not announced; announced blocks of "
                f"the prompt, by group: {self._presence(manager, request, stream)}; held blocks: "
                f"{self._presence(manager, request, pool)}")

    @staticmethod
    def _presence(manager, request, held) -> str:
        names = [external(name) for name in request.block_hashes]
        return " ".join("".join("x" if held[group, name] else "." for name in names) or "-"
                        for group in range(manager.num_kv_cache_groups))
