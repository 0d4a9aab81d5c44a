// The functions of WorkerIngest that save, restore, replace and drop the state of a worker.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <utility>
#include <variant>

#include "router/service/ingest/worker_ingest.h"

namespace kvcast::router {

std::vector<uint8_t> WorkerIngest::Save() const {
  FieldWriter to;
  to.Int(static_cast<uint64_t>(form_.load()));
  to.Int(static_cast<uint64_t>(epoch_.release));
  to.Bool(has_components_);
  to.Bool(replica_.left_out());
  to.Int(cache_size_.blocks);
  to.Int(cache_size_.groups);
  to.Int(static_cast<uint64_t>(cache_size_.tokens.load()));
  const std::optional<double> ts = last_batch_ts();
  to.Bool(ts.has_value());
  to.Fixed(std::bit_cast<uint64_t>(ts.value_or(0)));
  to.Bool(lacks_host_blocks());
  host_memory_.Save(to);
  return to.Take();
}

Status WorkerIngest::Restore(std::span<const uint8_t> saved, uint64_t next_seq,
                             const std::function<Status()>& restore_blocks) {
  FieldReader from(saved);
  const auto form = static_cast<EventHashForm>(from.Int(1));
  const auto release = static_cast<Release>(from.Int(static_cast<uint64_t>(Release::kFork)));
  const bool has_components = from.Bool();
  const bool left_out = from.Bool();
  const uint64_t blocks = from.Int();
  const size_t groups = from.Int();
  const auto tokens = static_cast<int64_t>(from.Int(~uint64_t{0} >> 1));
  const bool has_ts = from.Bool();
  const auto ts = std::bit_cast<double>(from.Fixed());
  const bool lacks_host_blocks = from.Bool();
  HostMemoryEvents host_memory = host_memory_;
  host_memory.Restore(from);
  if (!from.AtEnd()) return {StatusCode::kMalformed, "the properties of the source are damaged"};
  if (Status status = restore_blocks(); !status.ok()) return status;
  form_ = form;
  epoch_ = {.began = true, .release = release};
  has_components_ = has_components;
  host_memory_ = host_memory;
  doubts_.lacks_host_blocks = doubts_.cleared_host = lacks_host_blocks;
  cache_size_.blocks = blocks;
  cache_size_.groups = groups;
  cache_size_.tokens = tokens;
  replica_.Resume(next_seq, left_out);
  BlockCounts held;
  for (const GroupTierDigest& digest : index_.Digests(id_)) {
    const auto copies = std::min<uint64_t>(digest.total.copies, ~uint32_t{0});
    held.Hold(digest.tier, digest.group, static_cast<uint32_t>(copies));
  }
  NoteIndexCounters(index_.counters(id_));
  const MutexLock lock(mutex_);
  block_counts_.Replace(held);
  if (has_ts) last_batch_ts_ = ts;
  return Status();
}

bool WorkerIngest::CommitSnapshot(const PublisherStatus& status) {
  if (!takes_snapshots()) {
    replica_.DropSnapshot();
    return false;
  }
  ++doubts_.replacements;
  if (!replica_.CommitSnapshot(status)) return false;
  doubts_.inexact = doubts_.lacks_host_blocks = false;
  doubts_.undecodable = 0;
  host_memory_.NoteMissedStores();
  epoch_.began = true;
  BlockCounts held;
  index_.ForEachResidency(id_, [&held](Tier tier, uint8_t group, const BlockHash&,
                                       uint32_t copies) { held.Hold(tier, group, copies); });
  NoteIndexCounters(index_.counters(id_));
  MutexLock lock(mutex_);
  block_counts_.Replace(held);
  return true;
}

// vLLM's connector announces no removes when a reset drops its blocks in host memory. The event of
// the reset has no medium, whether or not the connector was reset. The state of the publisher keeps
// these blocks too, so a snapshot does not end the doubt.
void WorkerIngest::NoteClears() {
  const auto is_clear = [](const Event& event) {
    return std::holds_alternative<AllBlocksCleared>(event);
  };
  if (std::ranges::none_of(batch_.events, is_clear)) return;
  bool holds = false;
  {
    MutexLock lock(mutex_);
    holds = std::ranges::any_of(block_counts_.groups(), [](const GroupTally& group) {
      return group.tiers[static_cast<size_t>(Tier::kCpu)].held > 0;
    });
  }
  for (const Event& event : batch_.events) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) {
      holds = holds || TierOf(stored->medium) == Tier::kCpu;
    } else if (const auto* clear = std::get_if<AllBlocksCleared>(&event)) {
      if (!clear->medium && holds) doubts_.cleared_host = true;
      if (TierOf(clear->medium) != Tier::kCpu) continue;
      doubts_.cleared_host = holds = false;
    }
  }
}

uint64_t WorkerIngest::OnReset(ResetReason reason) {
  const uint64_t dropped = std::exchange(doubts_.undecodable, 0) + index_.counters(id_).residencies;
  ++doubts_.replacements;
  {
    MutexLock lock(mutex_);
    ++(reason == ResetReason::kRestart ? counters_.restarts : counters_.losses);
    block_counts_.Clear();
  }
  if (mooncake_) mooncake_->Restart();
  if (trtllm_) trtllm_->Forget();
  if (reason == ResetReason::kRestart) {
    replica_.Reset(/*restart=*/true);
    epoch_.release = Release::kUnknown;
    doubts_.lacks_host_blocks = doubts_.cleared_host = false;
    has_components_ = false;
    epoch_.began = false;
    watch_.Restart();
    NoteScheme();
  } else {
    replica_.Reset(/*restart=*/false);
    NoteMissedBatches();
  }
  doubts_.inexact = false;
  NoteIndexCounters(index_.counters(id_));
  return dropped;
}

HashScheme WorkerIngest::scheme() const {
  MutexLock lock(mutex_);
  HashScheme scheme = config_.assumed;
  if (const auto& found = scheme_.verdict->scheme; found && !found->none_hash.empty()) {
    scheme.algorithm = found->algorithm;
    scheme.none_hash = found->none_hash;
  }
  scheme.form = form_;
  return scheme;
}

}  // namespace kvcast::router
