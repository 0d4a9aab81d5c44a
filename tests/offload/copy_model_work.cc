// The workers of the CopyModel: copies and the model's run.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/offload/copy_model.h"

namespace kvcast::offload {

namespace {

constexpr uint64_t kGarbage = 0;

}  // namespace

// The worker's half of a step, up to the model's run.
void CopyModel::Work() {
  const auto submit = [&](Copy copy) {
    copy.steps_left = Random(4);
    copies_.insert_or_assign(copy.job.id, std::move(copy));
  };
  for (Copy& copy : std::exchange(deferred_stores_, {})) submit(std::move(copy));
  std::vector<OffloadStep::Scheduled> scheduled;
  for (const Scheduled& entry : scheduled_) {
    Request& request = *entry.request;
    scheduled.push_back({request.id, request.computed, entry.tokens,
                         std::exchange(request.starts, false), request.new_blocks});
  }
  const OffloadPlan& plan = scheduler_->BuildStep({scheduled, std::exchange(preempted_, {}), {}});
  for (const OffloadJobId job : plan.flush) {
    ++counts_.flushes;
    const auto found = copies_.find(job);
    if (found != copies_.end()) {
      found->second.steps_left = -1;
    } else {
      // Of this very step: submitted and waited for before anything is computed.
      const auto store = std::find_if(plan.stores.begin(), plan.stores.end(),
                                      [&](const OffloadJob& s) { return s.id == job; });
      if (store == plan.stores.end()) continue;  // has ended
      const Request* request = Find(store->request);
      submit({*store, request->prefix});
      copies_.at(job).steps_left = -1;
    }
  }
  for (auto& [id, copy] : copies_) {
    if (copy.steps_left == -1) Execute(copy);
  }
  for (const OffloadJob& job : plan.loads) {
    ++counts_.loads;
    submit({job, Find(job.request)->prefix});
  }
  for (const OffloadJob& job : plan.stores) {
    ++counts_.stores;
    if (!copies_.contains(job.id)) deferred_stores_.push_back({job, Find(job.request)->prefix});
  }
}

void CopyModel::CopyGroup(const Copy& copy, size_t group, size_t first_block, size_t first_slot) {
  const OffloadJob& job = copy.job;
  const int64_t bpc = config_.blocks_per_chunk;
  const int64_t slots = scheduler_->manager().slots_per_chunk(GroupIdx(uint32_t(group)));
  const int64_t size = config_.groups[group].block_size;
  for (int64_t i = 0; i < job.group_sizes[group]; ++i) {
    const int64_t skip = job.block_indices[group] % bpc;
    const int64_t chunk = (skip + i) / bpc;
    const size_t slot = first_slot + static_cast<size_t>(chunk * slots);
    Cells& host = host_[{job.slots.at(slot).value, (skip + i) % bpc}];
    Cells& gpu = Gpu(job.gpu_blocks.at(first_block + static_cast<size_t>(i)));
    host.resize(gpu.size(), kGarbage);
    if (!job.store) {
      gpu = host;
      continue;
    }
    host = gpu;
    // The job does not say where later chunks are; the content does, or nobody can use it.
    const auto own = std::find(copy.prefix.begin(), copy.prefix.end(), (host[0] - group - 1) / 31);
    if (own == copy.prefix.end()) {
      ++counts_.poisoned;
      continue;
    }
    const auto begin = own - copy.prefix.begin();
    for (int64_t t = 0; t < size; ++t) {
      const bool right =
          begin % size == 0 && begin + t < std::ssize(copy.prefix) &&
          host[static_cast<size_t>(t)] == Value(copy.prefix[static_cast<size_t>(begin + t)], group);
      counts_.poisoned += !right;
    }
  }
}

void CopyModel::Execute(const Copy& copy) {
  size_t block = 0;
  size_t slot = 0;
  for (size_t g = 0; g < config_.groups.size(); ++g) {
    CopyGroup(copy, g, block, slot);
    const int64_t count = copy.job.group_sizes[g];
    block += static_cast<size_t>(count);
    if (count == 0) continue;
    const int64_t chunks = CeilDiv(copy.job.block_indices[g] % config_.blocks_per_chunk + count,
                                   config_.blocks_per_chunk);
    slot += static_cast<size_t>(
        chunks * scheduler_->manager().slots_per_chunk(GroupIdx(static_cast<uint32_t>(g))));
  }
  EXPECT_EQ(slot, copy.job.slots.size());
}

void CopyModel::Compute() {
  for (const Scheduled& entry : scheduled_) {
    Request& request = *entry.request;
    for (uint32_t g = 0; g < config_.groups.size(); ++g) {
      const int64_t size = config_.groups[g].block_size;
      const auto table = cache_->BlockTable(request.cache, GroupIdx(g));
      for (int64_t i = CeilDiv(request.computed, size); i < std::ssize(table); ++i) {
        const BlockId block = table[static_cast<size_t>(i)];
        if (block.value != 0) std::fill(Gpu(block).begin(), Gpu(block).end(), kGarbage);
      }
    }
  }
  for (const Scheduled& entry : scheduled_) {
    Request& request = *entry.request;
    for (uint32_t g = 0; g < config_.groups.size(); ++g) {
      const int64_t size = config_.groups[g].block_size;
      const auto table = cache_->BlockTable(request.cache, GroupIdx(g));
      for (int64_t t = request.computed; t < request.computed + entry.tokens; ++t) {
        const BlockId block = table[static_cast<size_t>(t / size)];
        if (block.value == 0) continue;
        Gpu(block)[static_cast<size_t>(t % size)] =
            Value(request.prefix[static_cast<size_t>(t)], g);
      }
    }
  }
  for (const Scheduled& entry : scheduled_) CheckReads(*entry.request);
  for (const Scheduled& entry : scheduled_) entry.request->computed += entry.tokens;
}

void CopyModel::CheckReads(const Request& request) {
  for (uint32_t g = 0; g < config_.groups.size(); ++g) {
    const GroupSpec& spec = config_.groups[g];
    const auto table = cache_->BlockTable(request.cache, GroupIdx(g));
    for (int64_t t = SkippedTokens(spec, request.computed); t < request.computed; ++t) {
      const BlockId block = table[static_cast<size_t>(t / spec.block_size)];
      const uint64_t found = Gpu(block)[static_cast<size_t>(t % spec.block_size)];
      counts_.garbled += found != Value(request.prefix[static_cast<size_t>(t)], g);
    }
  }
}

void CopyModel::EndCopies(bool all) {
  std::vector<OffloadCompletion> completions;
  for (auto it = copies_.begin(); it != copies_.end();) {
    Copy& copy = it->second;
    const bool flushed = copy.steps_left == -1;
    if (!all && copy.steps_left-- > 0) {
      ++it;
      continue;
    }
    bool success = true;
    if (!flushed) {
      success = !Chance(config_.failure_rate);
      if (success) Execute(copy);
      counts_.failures += !success;
    }
    completions.push_back({copy.job.id, 1, success});
    it = copies_.erase(it);
  }
  OffloadArrivals arrivals;
  scheduler_->OnCompletions(completions, arrivals);
  const auto arrive = [&](OffloadRequestId id, bool success) {
    Request* request = Find(id);
    ASSERT_TRUE(request != nullptr && request->state == State::kLoading);
    request->load_failed |= !success;
    if (request->aborted || !success) {
      cache_->Free(request->cache);
      request->state = State::kWaiting;
      request->computed = 0;
      return;
    }
    cache_->CacheBlocks(request->cache, request->load_end);
    request->computed = std::min(request->load_end, std::ssize(request->cache.tokens) - 1);
    request->state = State::kLoaded;
  };
  for (const OffloadRequestId id : arrivals.loaded) arrive(id, true);
  for (const OffloadRequestId id : arrivals.failed) arrive(id, false);
}

}  // namespace kvcast::offload
