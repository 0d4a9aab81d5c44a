"""Host memory for the KV cache on a machine without an accelerator. `spec_module_path` of vLLM names this
module.

Offloading manager, scheduler and events are vLLM's own. vLLM's worker needs an accelerator. The worker
of this module copies between tensors on the CPU, before the submit call returns.
SPDX-License-Identifier: Apache-2.0
"""
import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec


class HostWorker(OffloadingWorker):
    """A host slot holds one GPU block, because blocks_per_chunk is 1."""

    def __init__(self, kv_caches, chunks: int):
        self._gpu = [cache.tensor.view(torch.int8).view((-1, cache.page_size_bytes))
                     for cache in kv_caches.tensors]
        self._host = [torch.zeros((chunks, tensor.shape[1]), dtype=torch.int8)
                      for tensor in self._gpu]
        self._references = kv_caches.group_data_refs
        self._finished = []
        self.copied = 0

    def _copy(self, job, gpu, host, to_host: bool) -> bool:
        assert len(gpu.block_ids) == len(host.block_ids)
        pairs = list(zip(gpu.block_ids, host.block_ids))
        size = 0
        for group, count in enumerate(gpu.group_sizes):
            group_pairs, pairs = pairs[:count], pairs[count:]
            for reference in self._references[group]:
                device, memory = self._gpu[reference.tensor_idx], self._host[reference.tensor_idx]
                for block, slot in group_pairs:
                    if to_host:
                        memory[slot].copy_(device[block])
                    else:
                        device[block].copy_(memory[slot])
                size += len(group_pairs) * reference.page_size_bytes
        self.copied += size
        self._finished.append(TransferResult(job, True, size, 1e-6))
        return True

    def submit_store(self, job_id, src_spec, dst_spec) -> bool:
        return self._copy(job_id, src_spec, dst_spec, True)

    def submit_load(self, job_id, src_spec, dst_spec) -> bool:
        return self._copy(job_id, dst_spec, src_spec, False)

    def get_finished(self) -> list[TransferResult]:
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """Does nothing: a copy has ended when its submit call returns."""


class HostOffloadingSpec(CPUOffloadingSpec):
    def get_worker(self, kv_caches) -> OffloadingWorker:
        assert self.blocks_per_chunk == 1
        if not self._worker:
            self._worker = HostWorker(kv_caches, self.num_chunks)
        return self._worker
