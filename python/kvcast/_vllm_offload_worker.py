"""The worker of kvcast.vllm for vLLM's offloading connector: copies with kvcast's engine. The import needs vLLM."""
import time

import kvcast
from vllm.v1.kv_offload.base import CanonicalKVCaches, OffloadingWorker, TransferResult


class KvcastOffloadingWorker(OffloadingWorker):
    """vLLM's interface of a worker over kvcast.BlockCopier.

    kv_caches: the KV cache of this worker. num_chunks: chunks of the host memory. chunk_bytes: bytes of a
    chunk. backend: "host" if the KV cache is in host memory, "cuda" if the KV cache is on a GPU."""

    def __init__(self, kv_caches: CanonicalKVCaches, num_chunks: int, chunk_bytes: int, blocks_per_chunk: int,
                 backend: str):
        tensors = [cache.tensor for cache in kv_caches.tensors]
        devices = {tensor.device.type for tensor in tensors}
        if devices != {"cpu" if backend == "host" else "cuda"}:
            raise ValueError(f"kvcast_copies: {backend} cannot copy a KV cache on {', '.join(sorted(devices))}")
        self._cuda = backend == "cuda"
        self._device = tensors[0].device
        arrays = tensors if self._cuda else [tensor.numpy() for tensor in tensors]
        groups = [[(arrays[ref.tensor_idx], ref.page_size_bytes) for ref in refs]
                  for refs in kv_caches.group_data_refs]
        self._copier = kvcast.BlockCopier(groups, num_chunks, chunk_bytes, blocks_per_chunk=blocks_per_chunk,
                                          backend=backend, device=self._device.index or 0)
        # By job: its bytes, the time of its start, and the event that its copies wait for.
        self._running: dict[int, tuple[int, float, object]] = {}

    def _event(self):
        """Return an event of the compute stream. The copies start after the work that is queued in this stream.
        None: the KV cache is in host memory."""
        if not self._cuda:
            return None
        import torch

        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))
        return event

    def _submit(self, job_id: int, store: bool, blocks, slots) -> bool:
        event = self._event()
        size = sum(count * block for count, block in zip(blocks.group_sizes, self._copier.block_bytes))
        self._running[job_id] = (size, time.monotonic(), event)
        self._copier.submit(job_id, store, blocks.block_ids, blocks.group_sizes, blocks.block_indices,
                            slots.block_ids, after=event.cuda_event if event else 0)
        return True

    def submit_store(self, job_id: int, src_spec, dst_spec) -> bool:
        return self._submit(job_id, True, src_spec, dst_spec)

    def submit_load(self, job_id: int, src_spec, dst_spec, expedited: bool = False) -> bool:
        """Start a load. Loads are copied before stores, so `expedited` changes nothing."""
        return self._submit(job_id, False, dst_spec, src_spec)

    def get_finished(self) -> list[TransferResult]:
        """Return the jobs that ended. transfer_time: seconds from the submission to this call."""
        results = []
        for job_id, error in self._copier.poll():
            size, start, _ = self._running.pop(job_id)
            if error is not None:
                raise RuntimeError(f"kvcast: the copies of offloading job {job_id} failed: {error}")
            results.append(TransferResult(job_id, True, size, time.monotonic() - start))
        return results

    def wait(self, job_ids: set[int]) -> None:
        self._copier.wait([job_id for job_id in job_ids if job_id in self._running])

    def shutdown(self) -> None:
        self._copier.close()
        self._running.clear()
