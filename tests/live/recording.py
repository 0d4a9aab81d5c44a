"""Writes a live run as a scenario file. `kvcast conformance router FILE` replays the scenario.

The file has one line per published batch. The probes of a line are the lookups between this batch and
the next batch. The file contains only the operations of the engine that the replay of a router reads. It
does not contain the operations of the allocator.
SPDX-License-Identifier: Apache-2.0
"""
import gzip
import json
import os

from mirror import held_by_pool

_KINDS = {"full_attention": "full", "mla_attention": "full", "sliding_window": "swa",
          "chunked_local_attention": "chunked", "mamba": "mamba"}


def _plain(value):
    """Returns a value in the form of the scenario files."""
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _event(event) -> dict:
    written = {"type": type(event).__name__}
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if name == "block_hashes":
            written[name] = [_hash(item) for item in value]
        elif name == "parent_block_hash":
            written[name] = _hash(value)
        elif value is not None:
            written[name] = _plain(value)
    return written


def _hash(name):
    return name.hex() if isinstance(name, bytes) else name


class Recording:
    def __init__(self, path: str, name: str, engine):
        import msgspec

        self._encoder = msgspec.msgpack.Encoder()
        self._path = path
        self._engine = engine
        self._lines = [self._config(name)]
        self._ops = []
        self._step = None  # the line of the newest batch; not yet in _lines
        self.probes = 0

    def _config(self, name: str) -> dict:
        import vllm
        from vllm.v1.core import kv_cache_utils

        engine, config = self._engine, self._engine.config
        scheduler, coordinator = engine.scheduler, engine.manager.coordinator
        groups = []
        for members, group in zip(engine.groups(), scheduler.kv_cache_config.kv_cache_groups):
            spec = group.kv_cache_spec
            written = {"kind": _KINDS[members["kind"]], "block_size": spec.block_size,
                       "spec_kind": members["kind"]}
            if "sliding_window" in members:
                written["window"] = members["sliding_window"]
            if "chunk_size" in members:
                written["chunk"] = members["chunk_size"]
            if written["kind"] == "mamba":
                written |= {"mode": "align", "num_speculative_blocks": spec.num_speculative_blocks}
            if members.get("eagle"):
                written["eagle"] = True
            groups.append(written)
        return {
            "record": "config", "name": name, "producer": "vllm", "live": True,
            "release_note": f"release {vllm.__version__}", "groups": groups,
            "release": engine.release(), "num_blocks": scheduler.kv_cache_config.num_blocks,
            "null_block_id": 0, "max_model_len": config.model_config.max_model_len,
            "max_num_seqs": config.scheduler_config.max_num_seqs,
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
            "scheduler_block_size": scheduler.block_size,
            "hash_block_size": scheduler.hash_block_size,
            "prefix_cache_retention_interval": config.cache_config.prefix_cache_retention_interval,
            "coordinator": type(coordinator).__name__,
            "enable_partial_hash_hits": coordinator.enable_partial_hash_hits,
            "hash_algo": config.cache_config.prefix_caching_hash_algo,
            "pythonhashseed": os.environ.get("PYTHONHASHSEED"),
            "none_hash": kv_cache_utils.NONE_HASH.hex(),
            "event_hashes": "int64" if _events_have_integers() else "bytes",
            "event_encoding": "map", "extra_key_scheme": "tagged",
            "event_layout": "vllm_l12" if engine.release() == "v0.33" else "vllm_l11",
            "hash_lookahead_tokens": getattr(config, "num_hash_lookahead_tokens", 0)}

    def op(self, name: str, **members) -> None:
        self._ops.append({"op": name} | members)

    def add(self, name: str, request) -> None:
        self.op("add", req=name, tokens=list(request.tokens), n=len(request.tokens),
                max_tokens=request.max_tokens, **self._keyed(request.key, request.reports))

    def _keyed(self, key, reports: bool) -> dict:
        written = {}
        if key.cache_salt is not None:
            written["salt"] = key.cache_salt
        if key.lora_name is not None:
            names = [name for name, _ in self._engine.options.adapters]
            written["lora"] = {"name": key.lora_name, "id": names.index(key.lora_name) + 1,
                               "path": dict(self._engine.options.adapters)[key.lora_name]}
        if reports:
            written["kv_cache_report_mode"] = "full"
        return written

    def batch(self, batch) -> None:
        self._close_step()
        payload = self._encoder.encode(batch)
        self._step = {"step": self._engine.published, "ops": self._ops,
                      "events": [_event(event) for event in batch.events],
                      "payload_hex": payload.hex(), "probes": []}
        self._ops = []

    def probe(self, tokens: list[int], key, reports: bool, hit: int) -> None:
        """Records a lookup at this point of the stream. A lookup before the first batch is not
        recorded, because there is no line for it."""
        if self._step is None:
            return
        self.probes += 1
        self._step["probes"].append({"tokens": tokens, "n": len(tokens), "hit": hit}
                                    | self._keyed(key, reports))

    def _close_step(self) -> None:
        if self._step is None:
            return
        self._step["free_blocks"] = self._engine.manager.block_pool.get_num_free_blocks()
        self._lines.append(self._step)
        self._step = None

    def close(self) -> None:
        self._close_step()
        # A replay counts the blocks of all tiers, but the pool has only the blocks of the GPU. With host
        # memory the counts would differ, so the file has no final record.
        if not self._engine.options.host_bytes:
            self._lines.append(self._final())
        open_file = gzip.open if self._path.endswith(".gz") else open
        with open_file(self._path, "wt", encoding="utf-8") as file:
            for line in self._lines:
                file.write(json.dumps(line) + "\n")

    def _final(self) -> dict:
        cached = {str(group): [] for group in range(self._engine.manager.num_kv_cache_groups)}
        for (group, name), count in held_by_pool(self._engine.manager).items():
            cached[str(group)].append([_hash(name), count])
        return {"record": "final", "cached": cached}


def _events_have_integers() -> bool:
    from vllm import envs

    return bool(envs.VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES)
