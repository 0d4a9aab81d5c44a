"""vLLM in this process, with a tiny model, the real scheduler and the real publisher.
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import os
import socket
import time
from dataclasses import dataclass

# These variables must be set before vLLM is imported. The engine core runs in this process, so that this
# program can count the published batches.
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
}

BLOCK = 32  # attention on the CPU needs a multiple of 32
IN_FLIGHT = 8


@dataclass(frozen=True)
class EngineOptions:
    model: str  # a folder
    draft: str | None = None  # EAGLE draft model, a folder
    adapters: tuple[tuple[str, str], ...] = ()  # name and folder
    blocks: int = 300
    longest: int = 1500
    unit: int | None = None  # hits end at multiples of this number of tokens; below the block size
    connects: bool = False  # the publisher connects to a port of the router
    hash_algorithm: str | None = None
    retention: int | str = "default"  # tokens; "none": keep all blocks; "default": the value of vLLM
    host_bytes: int = 0  # host memory of the offloading connector; 0: no connector
    spec: str = "vllm"  # a name of _SPECS
    rank: int = 0  # data-parallel rank
    ports: tuple[int, int] | None = None  # (events, replay) of rank 0; the publisher adds the rank
    buffer_steps: int = 10000  # batches that a replay can return
    plugin: bool = False  # kvcast.vllm replaces vLLM's publisher

# The options of the offloading connector: vLLM's manager with copies on the CPU, or kvcast's manager and copies.
_SPECS = {
    "vllm": {"spec_name": "HostOffloadingSpec", "spec_module_path": "host_offload"},
    "kvcast": {"spec_name": "KvcastOffloadingSpec", "spec_module_path": "kvcast.vllm", "kvcast_copies": "host"},
    "kvcast-arc": {"spec_name": "KvcastOffloadingSpec", "spec_module_path": "kvcast.vllm", "kvcast_copies": "host",
                   "eviction_policy": "arc", "store_threshold": 2},
    "kvcast-policy": {"spec_name": "HostOffloadingSpec", "spec_module_path": "host_offload",
                      "eviction_policy": "KvcastCachePolicy", "cache_policy_module_path": "kvcast.vllm"},
}


def free_ports(count: int) -> list[int]:
    """Returns different ports that were free a moment ago."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in sockets:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in sockets]


def _publish_as(rank: int) -> None:
    """Makes the publisher of this process publish as the data-parallel rank `rank`. The data-parallel
    engine cores of a dense model are separate engines. The rank is in their batches and is added to
    their ports. vLLM itself starts such engine cores only under its server."""
    from vllm.distributed.kv_events import EventPublisherFactory

    create = EventPublisherFactory.create
    EventPublisherFactory.create = \
        classmethod(lambda factory, config, _rank=0: create(config, rank))


class Engine:
    def __init__(self, options: EngineOptions):
        from vllm import LLM
        from vllm.lora.request import LoRARequest

        self.options = options
        if options.rank > 0:
            _publish_as(options.rank)
        self._llm = LLM(**self._arguments())
        self._lora = {name: LoRARequest(name, number, path)
                      for number, (name, path) in enumerate(options.adapters, 1)}
        core = self._llm.llm_engine.engine_core.engine_core
        self.config = core.vllm_config
        self.scheduler = core.scheduler
        self.manager = self.scheduler.kv_cache_manager
        self._publisher = self.scheduler.kv_event_publisher
        if type(self._publisher).__module__.startswith("kvcast") != options.plugin:
            raise RuntimeError(f"the publisher is a {type(self._publisher)}")
        self.endpoint, self.replay_endpoint = self._bound()
        self.published = 0
        self.on_batch = []  # functions that are called with each batch, in order, before it is sent
        self.on_lookup = None  # called with a request and a function that makes the lookup
        self._wrap_publish_and_lookup()
        self._number = 0

    def _arguments(self) -> dict:
        from vllm.config import KVEventsConfig

        options = self.options
        self._endpoint, replay = "tcp://127.0.0.1:*", "tcp://127.0.0.1:*"
        if options.ports is not None:
            self._endpoint, replay = (f"tcp://*:{port}" for port in options.ports)
        elif options.connects:
            self._endpoint = f"tcp://127.0.0.1:{free_ports(1)[0]}"
        arguments = dict(
            model=options.model, load_format="dummy", skip_tokenizer_init=True, enforce_eager=True,
            enable_prefix_caching=True, block_size=BLOCK, max_model_len=2048,
            max_num_seqs=IN_FLIGHT, max_num_batched_tokens=512,
            num_gpu_blocks_override=options.blocks, seed=0,
            dtype="bfloat16", gpu_memory_utilization=0.1,
            kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="zmq",
                                            endpoint=self._endpoint, replay_endpoint=replay,
                                            buffer_steps=options.buffer_steps, topic="kv-events"))
        if options.unit is not None:
            arguments["prefix_match_unit"] = options.unit
        if options.draft is not None:
            arguments["speculative_config"] = {"method": "eagle", "model": options.draft,
                                               "num_speculative_tokens": 2}
        if options.adapters:
            arguments |= dict(enable_lora=True, max_lora_rank=8, max_loras=len(options.adapters))
        if options.hash_algorithm is not None:
            arguments["prefix_caching_hash_algo"] = options.hash_algorithm
        if options.retention != "default":
            arguments["prefix_cache_retention_interval"] = \
                None if options.retention == "none" else int(options.retention)
        if options.host_bytes:
            from vllm.config import KVTransferConfig
            arguments["kv_transfer_config"] = KVTransferConfig(
                kv_connector="OffloadingConnector", kv_role="kv_both",
                kv_connector_extra_config=_SPECS[options.spec] | {
                    "cpu_bytes_to_use": options.host_bytes, "self_describing_kv_events": True})
        return arguments

    def _bound(self) -> tuple[str, str]:
        """Returns the endpoints (events, replay) for the source of a router on this machine."""
        import zmq

        rank = self.options.rank
        if self.options.ports is not None:
            return tuple(f"tcp://127.0.0.1:{port + rank}" for port in self.options.ports)
        if self.options.plugin:
            return self._publisher.endpoint, self._publisher.replay_endpoint
        # The system has chosen the ports for the wildcards.
        replay = self._publisher._replay.getsockopt_string(zmq.LAST_ENDPOINT)
        if self.options.connects:
            return self._endpoint, replay
        return self._publisher._pub.getsockopt_string(zmq.LAST_ENDPOINT), replay

    def _wrap_publish_and_lookup(self) -> None:
        publish, lookup = self._publisher.publish, self.manager.get_computed_blocks

        def noted(batch):
            for note in self.on_batch:
                note(batch)
            self.published += 1
            publish(batch)

        def watched(request, *rest):
            if self.on_lookup is None:
                return lookup(request, *rest)
            return self.on_lookup(request, lambda: lookup(request, *rest))

        self._publisher.publish = noted
        self.manager.get_computed_blocks = watched

    def pending(self) -> list:
        """Returns the events of the pool that are in no batch yet."""
        return self.manager.block_pool.kv_event_queue

    def publish_pending(self) -> None:
        from vllm.distributed.kv_events import KVEventBatch

        if events := self.manager.take_events():
            self._publisher.publish(KVEventBatch(ts=time.time(), events=events))

    def add(self, request) -> str:
        """Adds a request, and returns its name. The engine looks the request up in one of the next steps."""
        from vllm import SamplingParams

        self._number += 1
        name = f"r{self._number}"
        prompt = {"prompt_token_ids": list(request.tokens)}
        if request.key.cache_salt is not None:
            prompt["cache_salt"] = request.key.cache_salt
        mode = {"extra_args": {"kv_cache_report_mode": "full"}} if request.reports else {}
        parameters = SamplingParams(max_tokens=request.max_tokens, temperature=0, ignore_eos=True,
                                    detokenize=False, **mode)
        self._llm.llm_engine.add_request(name, prompt, parameters,
                                         lora_request=self._lora.get(request.key.lora_name))
        return name

    def step(self) -> list[tuple[str, int, list[int]]]:
        """Returns (name, num_cached_tokens, output tokens) of each request that has ended."""
        return [(output.request_id, output.num_cached_tokens, list(output.outputs[0].token_ids))
                for output in self._llm.llm_engine.step() if output.finished]

    def run(self, request) -> tuple[int, list[int]]:
        """Runs one request alone, to its end. Returns (num_cached_tokens, output tokens)."""
        self.add(request)
        ended = []
        while self._llm.llm_engine.has_unfinished_requests():
            ended += self.step()
        return ended[0][1:]

    def drain(self) -> None:
        """Runs steps until the engine has no unfinished request."""
        while self._llm.llm_engine.has_unfinished_requests():
            self.step()

    def reset(self) -> bool:
        return self._llm.reset_prefix_cache()

    def dropping_groups(self) -> set[int]:
        """Returns the groups that drop their last block for a draft head."""
        coordinator = self.manager.coordinator
        if hasattr(coordinator, "drop_eagle_group_ids"):
            return coordinator.drop_eagle_group_ids
        return coordinator.eagle_group_ids if self.options.draft else set()

    def groups(self) -> list[dict]:
        from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind

        groups = []
        for index, group in enumerate(self.scheduler.kv_cache_config.kv_cache_groups):
            spec = group.kv_cache_spec
            members = {"kind": get_kv_cache_spec_kind(spec).value, "block_size": spec.block_size}
            if getattr(spec, "sliding_window", None):
                members["sliding_window"] = spec.sliding_window
            if getattr(spec, "attention_chunk_size", None):
                members["chunk_size"] = spec.attention_chunk_size
            if index in self.dropping_groups():
                members["eagle"] = True
            groups.append(members)
        return groups

    def release(self) -> str:
        import vllm

        return "v0.33" if hasattr(self.manager.coordinator, "drop_eagle_group_ids") and \
            not vllm.__version__.startswith("0.32") else "v0.32"

    def properties(self, amount: str) -> dict:
        """Returns the members of a source that an operator would set for this engine. `amount`:
        nothing; needed (the members that the events do not show, or show late); all."""
        groups = self.groups()
        members = {}
        if amount == "needed" and self.manager.coordinator.enable_partial_hash_hits:
            # Until a whole block is stored, a store inside a block looks like a store of a smaller block.
            members = {"groups": groups} | self._units()
        elif amount == "needed":
            members["eagle"] = any(group.get("eagle") for group in groups)
            # The router does not know which of different groups drop a block.
            if members["eagle"] and len(groups) > 1:
                members = {"groups": groups}
            for group in groups:
                if "chunk_size" in group:
                    members["chunk_size"] = group["chunk_size"]
        elif amount == "all":
            members = {"groups": groups, "release": self.release(), "replay_tokens": 0,
                    "gpu_blocks": self.scheduler.kv_cache_config.num_blocks - 1}
            if self.manager.coordinator.enable_partial_hash_hits:
                members |= self._units()
        if amount != "nothing" and self.options.adapters:
            members["lora_paths"] = dict(self.options.adapters)
        return members

    def _units(self) -> dict:
        size = self.scheduler.hash_block_size
        return {"alignment": size, "hash_block_size": size}

    def stop(self) -> None:
        with contextlib.suppress(Exception):
            self._llm.llm_engine.engine_core.shutdown()


def set_environment() -> None:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
