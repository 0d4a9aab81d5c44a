// SPDX-License-Identifier: Apache-2.0
#include "router/service/source.h"

#include <utility>
#include <variant>

namespace kvcast::router {
namespace {

// An event of a kind that does not exist yet costs no truth; one that is known and broken may.
bool LosesTruth(const DecodeCounts& counts) {
  return counts.rejected_total() > counts.rejected[static_cast<size_t>(Reject::kUnknownEvent)];
}

void AddCounts(const DecodeCounts& from, DecodeCounts& to) {
  to.decoded += from.decoded;
  to.unknown_fields += from.unknown_fields;
  for (size_t i = 0; i < kRejectReasons; ++i) to.rejected[i] += from.rejected[i];
}

}  // namespace

Result<std::unique_ptr<Source>> Source::Create(WorkerId id, const RouterSource& config,
                                               PrefixIndex& index) {
  if (config.worker.name.empty()) {
    return Status(StatusCode::kInvalidArgument, "source: the name is empty");
  }
  Result<BlockHasher> hasher = config.none_hash.empty()
                                   ? BlockHasher::FromSeed(config.algorithm, config.hash_seed)
                                   : BlockHasher::FromNoneHash(config.algorithm, config.none_hash);
  if (!hasher.ok()) return hasher.status();
  if (Status status = index.AddWorker(id, config.worker); !status.ok()) {
    return Status(status.code(), config.worker.name + ": " + status.message());
  }
  const auto none = hasher->none_hash().bytes();
  return std::unique_ptr<Source>(
      new Source(id, config, index, std::vector<uint8_t>(none.begin(), none.end())));
}

Source::Source(WorkerId id, const RouterSource& config, PrefixIndex& index,
               std::vector<uint8_t> none)
    : id_(id),
      name_(config.worker.name),
      index_(index),
      algorithm_(config.algorithm),
      none_hash_(std::move(none)) {}

void Source::OnBatch(std::span<const uint8_t> payload) {
  DecodeCounts counts;
  const bool decoded = DecodeBatch(payload, WireLimits(), batch_, counts).ok();
  {
    MutexLock lock(mutex_);
    AddCounts(counts, counters_.decode);
    if (!decoded) ++counters_.undecodable_batches;
  }
  if (!decoded || LosesTruth(counts)) inexact_ = true;
  if (!decoded) {
    // Removes may have been among it: what stays could be promised for ever.
    index_.ClearWorker(id_);
    return;
  }
  NoteHashForm();
  index_.Apply(id_, batch_);
  MutexLock lock(mutex_);
  last_batch_ts_ = batch_.ts;
}

void Source::OnReset(ResetReason reason) {
  if (reason == ResetReason::kRestart) {
    index_.RestartWorker(id_);
    inexact_ = false;
  } else {
    index_.ClearWorker(id_);
  }
}

void Source::NoteHashForm() {
  for (const Event& event : batch_.events) {
    const auto* stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr || stored->block_hashes.empty()) continue;
    form_ = stored->block_hashes[0].is_bytes() ? EventHashForm::kBytes : EventHashForm::kInt64;
    return;
  }
}

HashScheme Source::scheme() const { return {algorithm_, none_hash_, form_}; }

SourceCounters Source::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

std::optional<double> Source::last_batch_ts() const {
  MutexLock lock(mutex_);
  return last_batch_ts_;
}

SourceState Source::State(SourceState stream) const {
  return stream == SourceState::kSynced && inexact_ ? SourceState::kDegraded : stream;
}

}  // namespace kvcast::router
