"""Part of the stand-in for vLLM: the slots of a job, and the names of metrics."""
from dataclasses import dataclass

from vllm.v1.kv_offload.base import BlockIDsLoadStoreSpec


class CPUOffloadingMetrics:
    STORES_SKIPPED = "stores_skipped"
    CPU_CACHE_USAGE_PERC = "usage"
    CPU_ALLOCATION_SIZE = "allocation_size"
    CPU_CACHE_WRITE_USAGE_PERC = "write_usage"
    CPU_CACHE_READ_USAGE_PERC = "read_usage"


class CPULoadStoreSpec(BlockIDsLoadStoreSpec):
    pass


@dataclass(frozen=True)
class CPUOffloadingInfo:
    cpu_num_chunks: int

    def as_config_info(self) -> dict:
        return {"cpu_num_chunks": self.cpu_num_chunks}
