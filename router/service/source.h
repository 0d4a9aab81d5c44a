// Source: one followed worker between the subscriber and the index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvcast/block_hash.h"
#include "kvcast/prefix_index.h"
#include "kvcast/status.h"
#include "kvcast/subscriber.h"
#include "kvcast/wire.h"
#include "src/base/mutex.h"

namespace kvcast::router {

// A worker to follow, as the operator describes it.
struct RouterSource {
  std::string endpoint;         // where its publisher's PUB listens
  std::string replay_endpoint;  // its ROUTER; empty: gaps cannot be closed
  std::string topic;            // subscription prefix; empty: all
  WorkerConfig worker;          // name (unique, not empty), groups, hash unit, alignment
  // How the engine hashes; for queries by tokens.
  HashAlgorithm algorithm = HashAlgorithm::kSha256;
  std::string hash_seed{kDefaultHashSeed};  // the engine's PYTHONHASHSEED
  std::vector<uint8_t> none_hash;  // NONE_HASH as raw bytes; where given, instead of a seed
};

// What two workers must share for one hash chain to serve both, besides the unit.
struct HashScheme {
  HashAlgorithm algorithm = HashAlgorithm::kSha256;
  std::vector<uint8_t> none_hash;
  EventHashForm form = EventHashForm::kInt64;

  friend auto operator<=>(const HashScheme&, const HashScheme&) = default;
};

struct SourceCounters {
  DecodeCounts decode;
  uint64_t undecodable_batches = 0;
};

class Source {
 public:
  // Registers the worker with `index`, which must outlive the source.
  static Result<std::unique_ptr<Source>> Create(WorkerId id, const RouterSource& config,
                                                PrefixIndex& index);

  WorkerId id() const { return id_; }
  const std::string& name() const { return name_; }

  // The subscriber's thread.
  void OnBatch(std::span<const uint8_t> payload);
  void OnReset(ResetReason reason);

  // Thread-safe from here on.
  // The form of hash is taken from the first store; integers until then.
  HashScheme scheme() const;
  SourceCounters counters() const;
  // The worker's own time stamp on the last batch that was applied, seconds since the epoch;
  // nullopt: none yet.
  std::optional<double> last_batch_ts() const;
  // The stream's state; kDegraded if batches or events came that could not be decoded, because the
  // index may then hold what the engine does not.
  SourceState State(SourceState stream) const;

 private:
  Source(WorkerId id, const RouterSource& config, PrefixIndex& index, std::vector<uint8_t> none);
  void NoteHashForm();

  const WorkerId id_;
  const std::string name_;
  PrefixIndex& index_;
  const HashAlgorithm algorithm_;
  const std::vector<uint8_t> none_hash_;
  EventBatch batch_;  // scratch of the subscriber's thread
  std::atomic<EventHashForm> form_{EventHashForm::kInt64};
  std::atomic<bool> inexact_{false};
  mutable Mutex mutex_;
  SourceCounters counters_ KV_GUARDED_BY(mutex_);
  std::optional<double> last_batch_ts_ KV_GUARDED_BY(mutex_);
};

}  // namespace kvcast::router
