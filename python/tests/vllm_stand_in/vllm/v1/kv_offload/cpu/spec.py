"""Part of the stand-in for vLLM: the spec of host memory."""
from vllm.v1.kv_offload.base import V033, OffloadingSpec
from vllm.v1.kv_offload.cpu.common import CPUOffloadingInfo
from vllm.v1.kv_offload.cpu.manager import CPUOffloadingManager


class CPUOffloadingWorker:
    def __init__(self, kv_caches):
        self.kv_caches = kv_caches


class CPUOffloadingSpec(OffloadingSpec):
    def __init__(self, config):
        super().__init__(config)
        self.cpu_page_size_per_worker = config.worker_kv_bytes_per_block * self.blocks_per_chunk
        self.num_chunks = int(self.extra_config["cpu_bytes_to_use"]) // self.cpu_page_size_per_worker
        self.replicated_layout = config.replicated_layout and self._uses_shared_region()
        self.eviction_policy = self.extra_config.get("eviction_policy", "lru")
        self._manager = self._worker = None
        if V033:
            self.cpu_info = CPUOffloadingInfo(self.num_chunks)

    def get_manager(self):
        if not self._manager:
            self._manager = CPUOffloadingManager(
                self.num_chunks, self.eviction_policy, self.extra_config.get("cache_policy_module_path"),
                self.kv_events_config.enable_kv_cache_events, int(self.extra_config.get("store_threshold", 0)),
                int(self.extra_config.get("max_tracker_size", 64_000)), **({"info": self.cpu_info} if V033 else {}))
        return self._manager

    def _uses_shared_region(self) -> bool:
        return True

    def get_worker(self, kv_caches):
        if not self._worker:
            self._worker = CPUOffloadingWorker(kv_caches)
        return self._worker
