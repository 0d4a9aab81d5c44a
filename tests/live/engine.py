"""vLLM in this process: a tiny model, a real scheduler, a real publisher.
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import os
import socket
from dataclasses import dataclass

# Before vLLM is imported. The engine core in this process: what it has published can be counted.
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

BLOCK = 32  # the CPU's attention takes multiples of 32


@dataclass(frozen=True)
class EngineOptions:
    model: str  # a folder
    draft: str | None = None  # of EAGLE, a folder
    adapters: tuple[tuple[str, str], ...] = ()  # name and folder
    blocks: int = 300
    longest: int = 1500
    unit: int | None = None  # tokens between the ends of hits, below the block size
    connects: bool = False  # the publisher connects to a port, as users write it


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Engine:
    def __init__(self, options: EngineOptions):
        import zmq
        from vllm import LLM
        from vllm.config import KVEventsConfig
        from vllm.lora.request import LoRARequest

        self.options = options
        port = _free_port()
        endpoint = f"tcp://127.0.0.1:{port if options.connects else '*'}"
        arguments = dict(
            model=options.model, load_format="dummy", skip_tokenizer_init=True, enforce_eager=True,
            enable_prefix_caching=True, block_size=BLOCK, max_model_len=4096, max_num_seqs=8,
            max_num_batched_tokens=512, num_gpu_blocks_override=options.blocks, seed=0,
            dtype="bfloat16", gpu_memory_utilization=0.1,
            kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="zmq",
                                            endpoint=endpoint, replay_endpoint="tcp://127.0.0.1:*",
                                            topic="kv-events"))
        if options.unit is not None:
            arguments["prefix_match_unit"] = options.unit
        if options.draft is not None:
            arguments["speculative_config"] = {"method": "eagle", "model": options.draft,
                                               "num_speculative_tokens": 2}
        if options.adapters:
            arguments |= dict(enable_lora=True, max_lora_rank=8, max_loras=len(options.adapters))
        self._llm = LLM(**arguments)
        self._lora = {name: LoRARequest(name, number, path)
                      for number, (name, path) in enumerate(options.adapters, 1)}
        self._scheduler = self._llm.llm_engine.engine_core.engine_core.scheduler
        publisher = self._scheduler.kv_event_publisher
        # What the system chose for the wildcard.
        self.endpoint = endpoint if options.connects else \
            publisher._pub.getsockopt_string(zmq.LAST_ENDPOINT)
        self.replay_endpoint = publisher._replay.getsockopt_string(zmq.LAST_ENDPOINT)
        self.published = 0
        publish = publisher.publish

        def counted(batch):
            self.published += 1
            publish(batch)

        publisher.publish = counted

    def run(self, request) -> tuple[int, list[int]]:
        """The engine's own word on what it reused, and the output."""
        from vllm import SamplingParams

        prompt = {"prompt_token_ids": list(request.tokens)}
        if request.key.cache_salt is not None:
            prompt["cache_salt"] = request.key.cache_salt
        parameters = SamplingParams(max_tokens=request.max_tokens, temperature=0, ignore_eos=True,
                                    detokenize=False)
        output = self._llm.generate(prompt, parameters, use_tqdm=False,
                                    lora_request=self._lora.get(request.key.lora_name))[0]
        return output.num_cached_tokens, list(output.outputs[0].token_ids)

    def properties(self) -> dict:
        """All that an operator could tell a router of this engine, as members of a source."""
        from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind

        config = self._scheduler.kv_cache_config
        drops = getattr(self._scheduler.kv_cache_manager.coordinator, "eagle_group_ids", set())
        groups = []
        for index, group in enumerate(config.kv_cache_groups):
            spec = group.kv_cache_spec
            told = {"kind": get_kv_cache_spec_kind(spec).value, "block_size": spec.block_size}
            if getattr(spec, "sliding_window", None):
                told["sliding_window"] = spec.sliding_window
            if getattr(spec, "attention_chunk_size", None):
                told["chunk_size"] = spec.attention_chunk_size
            if index in drops:
                told["eagle"] = True
            groups.append(told)
        told = {"groups": groups, "gpu_blocks": config.num_blocks}
        if self.options.adapters:
            told["lora_paths"] = dict(self.options.adapters)
        return told

    def stop(self) -> None:
        with contextlib.suppress(Exception):
            self._llm.llm_engine.engine_core.shutdown()


def set_environment() -> None:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
