// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "src/offload/mirror/simple_impl.h"

namespace kvcast {

using offload::BlockCopyPair;
using offload::Load;
using offload::MatchPin;
using offload::Store;

void SimpleOffload::Impl::FreeHost(std::vector<BlockId>& blocks) {
  if (!config.compatible) {
    const auto end_of = [this](BlockId block) {
      return cpu.cached().HasKeys(block) ? cpu.cached().PrimaryCoveredTokens(block) : 0;
    };
    // Free the end of a prefix first, because a shorter hit does not need the end.
    std::stable_sort(blocks.begin(), blocks.end(),
                     [&end_of](BlockId a, BlockId b) { return end_of(a) > end_of(b); });
  }
  cpu.Free(blocks);
}

void SimpleOffload::Impl::FreeMatched(const MatchPin& pin) {
  host_blocks.clear();
  for (const auto& blocks : pin.blocks) {
    host_blocks.insert(host_blocks.end(), blocks.begin(), blocks.end());
  }
  FreeHost(host_blocks);
}

void SimpleOffload::Impl::DropPin(const std::string& request_id) {
  const auto pin = pins.find(request_id);
  if (pin == pins.end()) return;
  FreeMatched(pin->second);
  pins.erase(pin);
}

PrefixHit SimpleOffload::Impl::Search(const CacheRequest& request, int64_t local_tokens,
                                      int64_t max_tokens) {
  // A hit can continue the local tokens only where blocks of all groups end.
  if (max_tokens <= 0 || local_tokens % config.cache.scheduler_block_size != 0) return {};
  const auto first = static_cast<size_t>(local_tokens / config.cache.hash_block_size);
  if (first >= request.chain.size()) return {};
  const int64_t before = config.compatible ? 0 : local_tokens;
  return lookup.Find(std::span(request.chain).subspan(first), max_tokens, before);
}

void SimpleOffload::Impl::StartLoad(const CacheRequest& request, int64_t local_tokens,
                                    int64_t tokens, std::span<const std::vector<BlockId>> blocks) {
  Load& load = loads[request.id];
  host_blocks.clear();
  gpu_blocks.clear();
  for (size_t i = 0; i < blocks.size(); ++i) {
    const GroupIdx group(static_cast<uint32_t>(i));
    const int64_t size = config.cache.groups[i].block_size;
    const auto table = gpu.BlockTable(request, group);
    const auto first = static_cast<size_t>(local_tokens / size);
    const size_t count = std::min(static_cast<size_t>(tokens / size), blocks[i].size());
    for (size_t j = 0; j < count && first + j < table.size(); ++j) {
      const BlockId host = blocks[i][j];
      const BlockId target = table[first + j];
      if (host == engine::kNullBlock || target == engine::kNullBlock) continue;
      const auto position = static_cast<int64_t>(first + j);
      const Digest& digest = BlockDigest(request.chain, position, units(group));
      load.copies.push_back({target, host, {digest, group, (position + 1) * size}});
      host_blocks.push_back(host);
      gpu_blocks.push_back(target);
      if (config.mode == StoreMode::kLazy && announces_stores()) {
        DescribeBlock(request, group, position, target);
      }
    }
  }
  cpu.Touch(host_blocks);
  gpu.Pin(gpu_blocks);
  new_loads.push_back(request.id);
}

void SimpleOffload::Impl::HandOutLoads(TransferStep& step) {
  step.load_event.reset();
  step.load.gpu.clear();
  step.load.cpu.clear();
  if (new_loads.empty()) return;
  step.load_event = next_load_event++;
  for (const std::string& id : new_loads) {
    Load& load = loads.at(id);
    load.event = step.load_event;
    for (const BlockCopyPair& copy : load.copies) {
      step.load.gpu.push_back(copy.gpu);
      step.load.cpu.push_back(copy.cpu);
    }
  }
  new_loads.clear();
}

void SimpleOffload::Impl::DropNotHandedOut() {
  Release(next_store.copies);
  next_store = Store();
  for (const std::string& id : new_loads) {
    Release(loads.at(id).copies);
    loads.erase(id);
  }
  new_loads.clear();
}

void SimpleOffload::Impl::ForgetHost(const Load& load) {
  host_blocks.clear();
  for (const BlockCopyPair& copy : load.copies) host_blocks.push_back(copy.cpu);
  cpu.Evict(host_blocks);
}

void SimpleOffload::Impl::EndLoad(Load& load, bool success) {
  // The host memory may be faulty. If the blocks stayed in the cache, every load of this prefix
  // would fail.
  if (!success) ForgetHost(load);
  Release(load.copies);
}

void SimpleOffload::Impl::Release(std::vector<BlockCopyPair>& copies, bool take_gpu_blocks_next) {
  if (!config.compatible) {
    std::stable_sort(copies.begin(), copies.end(),
                     [](const BlockCopyPair& a, const BlockCopyPair& b) {
                       return a.content.prefix_tokens > b.content.prefix_tokens;
                     });
  }
  host_blocks.clear();
  gpu_blocks.clear();
  for (const BlockCopyPair& copy : copies) {
    host_blocks.push_back(copy.cpu);
    gpu_blocks.push_back(copy.gpu);
  }
  FreeHost(host_blocks);
  gpu.Unpin(gpu_blocks, take_gpu_blocks_next);
  copies.clear();
}

}  // namespace kvcast
