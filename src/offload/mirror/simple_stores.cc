// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include "src/offload/mirror/simple_impl.h"

namespace kvcast {

using offload::BlockCopyPair;
using offload::Store;
using offload::StoreCandidate;

void SimpleOffload::Impl::ReserveCandidates() {
  host_blocks.clear();
  gpu_blocks.clear();
  cpu.Allocate(std::ssize(candidates), host_blocks);
  for (size_t i = 0; i < candidates.size(); ++i) {
    const StoreCandidate& chosen = candidates[i];
    gpu_blocks.push_back(chosen.gpu);
    storing_keys.insert(offload::KeyOf(chosen.content));
    storing_gpu_blocks.insert(chosen.gpu);
    next_store.copies.push_back({chosen.gpu, host_blocks[i], chosen.content});
  }
  gpu.Pin(gpu_blocks);
}

void SimpleOffload::Impl::HandOutStores(TransferStep& step) {
  step.store_event.reset();
  step.store.gpu.clear();
  step.store.cpu.clear();
  step.content.clear();
  if (next_store.copies.empty()) return;
  step.store_event = next_store_event++;
  for (const BlockCopyPair& copy : next_store.copies) {
    step.store.gpu.push_back(copy.gpu);
    step.store.cpu.push_back(copy.cpu);
    step.content.push_back(copy.content);
  }
  next_store.workers_left = config.num_workers;
  stores.emplace(*step.store_event, std::move(next_store));
  next_store = Store();
}

void SimpleOffload::Impl::EndStore(Store& store) {
  const bool cached = !store.abandoned && !store.failed;
  for (const BlockCopyPair& copy : store.copies) {
    if (cached)
      cpu.CacheAs({copy.content.digest, copy.content.group}, copy.cpu, copy.content.prefix_tokens);
    if (store.abandoned) continue;
    storing_keys.erase(offload::KeyOf(copy.content));
    storing_gpu_blocks.erase(copy.gpu);
    if (store.failed && config.mode == StoreMode::kLazy && !config.compatible) {
      failed_stores[copy.gpu] = copy.content;
    }
  }
  if (cached) {
    for (const BlockStored& event : store.events) cpu.events().AddStored(event);
  }
  // The stored blocks return to the head of the GPU's free queue. At the tail of the queue, they
  // would move other blocks to the head. The next step would then store those blocks, and the
  // stores would never stop.
  const bool saved = cached && config.mode == StoreMode::kLazy && !config.compatible;
  Release(store.copies, saved);
  for (const std::string& id : store.requests) {
    const auto found = progress.find(id);
    if (found == progress.end() || --found->second.stores > 0) continue;
    if (found->second.finished) progress.erase(found);
  }
}

}  // namespace kvcast
