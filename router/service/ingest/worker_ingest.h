// WorkerIngest: one followed worker. It decodes the batches from the subscriber or from a feed, and
// applies them to the index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/core/status.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/router/scheme_detector.h"
#include "kvcast/stream/subscriber.h"
#include "kvcast/wire/wire.h"
#include "router/replica/replica.h"
#include "router/service/ingest/block_counts.h"
#include "router/service/ingest/found_names.h"
#include "router/service/ingest/hash_scheme.h"
#include "router/service/ingest/host_memory_events.h"
#include "router/service/ingest/load_rates.h"
#include "router/service/ingest/mooncake_events.h"
#include "router/service/ingest/residency_budget.h"
#include "router/service/ingest/reuse_feedback.h"
#include "router/service/ingest/scheme_watch.h"
#include "router/service/ingest/trtllm_events.h"
#include "router/service/ingest/worker_registration.h"
#include "src/base/byte_fields.h"
#include "src/base/mutex.h"

namespace kvcast::router {

struct SourceCounters {
  DecodeCounts decode;
  uint64_t undecodable_batches = 0;
  // Resets because of max_residencies, of FleetLimits::residencies, or of too many copies (see
  // Replica::HasTooManyCopies).
  uint64_t oversized = 0;
  int64_t apply_ns = 0;   // time that the batches took to decode and apply
  uint64_t restarts = 0;  // restarts of the engine: epochs that ended
  // Resets because batches were lost or the state was in doubt. Format kTrtllm: also gaps in the
  // event ids.
  uint64_t losses = 0;
  ChallengeCounters challenges;
  uint64_t dropped_names = 0;  // prompts whose names did not fit; see FoundNames
  // With rank_by_tag: batches of other ranks, and empty batches without a rank.
  uint64_t other_rank_batches = 0;
  // With rank_by_tag: batches with events but without a rank.
  uint64_t untagged_batches = 0;
  std::optional<MooncakeCounters> mooncake;
  std::optional<TrtllmCounters> trtllm;
};

// An applied batch. Its references are valid only while the observer is called.
struct AppliedBatch {
  Seq seq;
  const EventBatch& batch;
  // Positions of events that were not applied, because they only repeat the known state.
  std::span<const size_t> left_out;
  // True: the payload had events of this worker, or events that may be of this worker, that are not
  // in the batch.
  bool lacks_events = false;
};

class WorkerIngest {
 public:
  // Registers the worker with `index`, which must outlive this object. `budget` may be nullptr.
  static Result<std::unique_ptr<WorkerIngest>> Create(
      WorkerId id, const WorkerRegistration& config, PrefixIndex& index,
      std::shared_ptr<ResidencyBudget> budget = nullptr);

  WorkerId id() const { return id_; }
  const std::string& name() const { return config_.name; }
  const std::string& model() const { return config_.model; }

  // The observer gets each applied batch. It must be set before the first batch.
  void set_observer(std::function<void(const AppliedBatch&)> observer) {
    observer_ = std::move(observer);
  }

  // Only one thread at a time calls these functions: a thread of the subscriber, or the thread on
  // which EventFeeds calls the FeedSink of this worker. See ReplicaSink and event_feeds.h.
  BatchResult OnBatch(std::span<const uint8_t> payload, Seq seq = Seq());
  // Returns the number of dropped residencies. If the batches before this call could not be
  // decoded, the number includes the residencies that these batches dropped.
  uint64_t OnReset(ResetReason reason);
  // False: a snapshot contains the blocks of all ranks, and the worker is one of several ranks that
  // share a publisher.
  bool takes_snapshots() const { return !config_.rank; }
  void BeginSnapshot() { replica_.BeginSnapshot(); }
  void BeginRepair(uint64_t buckets) { replica_.BeginRepair(buckets); }
  bool AddToSnapshot(std::span<const uint8_t> payload) { return replica_.AddToSnapshot(payload); }
  bool CommitSnapshot(const PublisherStatus& status);
  void DropSnapshot() { replica_.DropSnapshot(); }
  DigestVerdict Compare(const PublisherStatus& status) const {
    return config_.rank ? DigestVerdict::kUnknown : replica_.Compare(status);
  }
  uint64_t DifferingBuckets(const PublisherStatus& status) const {
    return replica_.DifferingBuckets(status);
  }
  bool WantsChallenge() const {
    return !mooncake_ && !trtllm_ && !config_.rank && watch_.WantsChallenge();
  }
  uint64_t BeginChallenge();
  void OnChallengeAnswer(std::span<const uint8_t> payload);

  // True: the worker's state can be saved and restored. False in four cases: no replay can prove
  // the state after a restart of the router; the format is kMooncake or kTrtllm; the index may
  // differ from the engine; hashes or feedback contradict the answers.
  bool CanSave() const {
    return config_.has_replay && !mooncake_ && !trtllm_ && !doubts_.inexact &&
           !doubts_.contradicted && !reuse_contradiction();
  }
  // The properties of the worker that the index does not know.
  std::vector<uint8_t> Save() const;
  // Restores saved properties, and calls `restore_blocks` to restore the blocks. Must be called
  // before the first batch. `next_seq`: the restored blocks are the state before this batch. Not
  // ok: the worker is like a new worker.
  Status Restore(std::span<const uint8_t> saved, uint64_t next_seq,
                 const std::function<Status()>& restore_blocks);

  // The functions below are thread-safe.
  // Takes the predicted tokens of a request, and the tokens that the engine reused. True:
  // this report and the reports before it refute the state of the source. `comparable`: the
  // prediction was exact, or would be exact without reuse_contradiction(), and no batch was applied
  // between the prediction and the engine's lookup.
  bool NoteReuse(int64_t predicted_tokens, int64_t cached_tokens, bool comparable);
  // See ReuseFeedback::contradiction.
  std::optional<int64_t> reuse_contradiction() const;
  // WorkerRegistration::gpu_blocks; 0: unknown.
  int64_t gpu_blocks() const { return config_.gpu_blocks; }
  // Tokens that fit into the worker's GPU cache. The cache has gpu_blocks blocks. If gpu_blocks is
  // 0, the cache has the greatest number of blocks that the worker has held since its first remove.
  // The full-attention groups share these blocks equally. 0: not known.
  int64_t cache_tokens() const { return cache_size_.tokens; }
  // The hash scheme of the stores. Until the scheme is detected, the configured scheme is returned,
  // by default vLLM's scheme. The form of the hashes is the form in the stores. Before the first
  // store, the form is integers.
  HashScheme scheme() const;
  // Not nullptr. The same object until the verdict changes.
  std::shared_ptr<const SchemeVerdict> verdict() const;
  SchemeCounters scheme_counters() const;
  // See SchemeWatch::is_contradicted.
  bool is_contradicted() const { return doubts_.contradicted; }
  // True: the blocks of the engine in host memory or storage may differ from those of the index,
  // because batches are missing since the engine's start, or because a reset of the engine may have
  // dropped blocks without an event. A snapshot ends the first cause, and a clear of the CPU tier
  // the second. A restart ends both.
  bool lacks_host_blocks() const { return doubts_.lacks_host_blocks || doubts_.cleared_host; }
  // Number of times that the source has dropped or replaced blocks in the index because the blocks
  // were wrong or incomplete, or has begun to do so. The number changes before the index changes.
  // Read the index first, and then this number: if the number equals SourceStatus::replacements,
  // the status describes the blocks that were read.
  uint64_t replacements() const { return doubts_.replacements; }
  // The reason why the engine's own lookup may differ from the router's answer, although the index
  // has all blocks of the engine. Empty: there is no such reason.
  std::string_view rule_doubt() const;
  // True: the events do not show the images, salts and adapters of a prompt, so the router does not
  // find the blocks of prompts that have some.
  bool hides_inputs() const { return config_.hides_inputs; }
  // Adds to SourceCounters::apply_ns.
  void NoteApplyTime(int64_t ns);
  // Takes names of the worker's blocks that queries have computed. The index gets them with the
  // next batch.
  void OfferNames(FoundNames names) { found_names_.Offer(std::move(names)); }
  // The path of an adapter; empty: not configured.
  std::string lora_path(const std::string& name) const;
  SourceCounters counters() const;
  std::vector<GroupTally> group_tallies() const;
  // The worker's own time stamp on the latest applied batch, in seconds since the Unix epoch.
  // nullopt: no batch was applied yet, or the latest batch has no time stamp.
  std::optional<double> last_batch_ts() const;
  // The counters of the index after the latest batch, snapshot or reset.
  IndexCounters index_counters() const;
  // The state of the stream. Exception: kSuspect instead of kSynced in four cases. The index may
  // then differ from the engine. A snapshot or a reset ends the exception.
  // - An event could not be decoded. (Exception: the decoder of kTrtllm then removes all blocks.)
  // - A batch with events did not name its rank.
  // - The decoder of kMooncake refused a store; see MooncakeCounters::refused.
  // - The detected hash block size did not fit the known blocks, so the index dropped all blocks.
  SourceState State(SourceState stream) const;

 private:
  // The parts of WorkerRegistration that the source uses.
  struct Config {
    std::string name;
    std::string model;
    int64_t gpu_blocks = 0;
    int64_t max_residencies = 0;
    bool has_replay = false;           // replay_endpoint is configured
    bool has_hash_block_size = false;  // hash_block_size is configured
    HashScheme assumed;                // used until the scheme is known
    std::map<std::string, std::string> lora_paths;
    // Set: several ranks share the endpoint, and the batches of the other ranks are dropped.
    std::optional<int64_t> rank;
    std::string_view rule_doubt;
    bool hides_inputs = false;
  };

  static Config ConfigOf(const WorkerRegistration& source, HashScheme assumed);
  WorkerIngest(WorkerId id, const WorkerRegistration& config, PrefixIndex& index,
               SchemeDetector detector, HashScheme assumed,
               std::shared_ptr<ResidencyBudget> budget);
  bool Decode(std::span<const uint8_t> payload, DecodeCounts& counts);
  bool DecodeMooncake(std::span<const uint8_t> payload, DecodeCounts& counts);
  bool DecodeTrtllm(std::span<const uint8_t> payload, DecodeCounts& counts);
  bool DropOtherRanks();
  void NoteBegin(Seq seq);
  // `groups`: the number of groups that have had blocks.
  void NoteCacheSize(const IndexCounters& now, size_t groups);
  bool Empties() const;
  void NoteClears();
  // `groups`: number of groups that have had blocks. `doubtful`: the decoder lost a part of the
  // batch.
  BatchResult ResultOf(const ApplyResult& applied, size_t groups, bool doubtful);
  bool IsTooLarge(const IndexCounters& now, size_t groups);
  void NoteRelease(const DecodeCounts& counts);
  void NoteIndexCounters(const IndexCounters& now);
  void NameFound();  // gives the names that queries have found to the index
  void NoteHashForm(const EventBatch& batch);
  void NoteScheme();
  void NoteMissedBatches();
  void LearnHashBlockSize(int64_t hash_block_size);

  const WorkerId id_;
  const Config config_;
  PrefixIndex& index_;
  Replica replica_;
  std::function<void(const AppliedBatch&)> observer_;
  FoundNamesQueue found_names_;
  // The members from batch_ to trtllm_ are used only by the thread that applies batches.
  EventBatch batch_;
  // The release that the headers and the fields of the stores show.
  enum class Release : uint8_t {
    kUnknown,
    kV033,  // vLLM 0.33 or later: the index has learned the rules of 0.33
    kFork,  // a fork of an older release; see DecodeCounts::skipped_fields
  };
  struct Epoch {
    bool began = false;  // a batch or a snapshot was applied
    Release release = Release::kUnknown;
  };
  Epoch epoch_;  // of the engine
  ResidencyBudget::Share share_;
  HostMemoryEvents host_memory_;
  SchemeWatch watch_;
  std::optional<MooncakeEvents> mooncake_;  // set for kMooncake
  std::optional<TrtllmEvents> trtllm_;      // set for kTrtllm
  std::atomic<EventHashForm> form_{EventHashForm::kInt64};
  struct Doubts {
    std::atomic<bool> inexact{false};            // see State
    std::atomic<bool> contradicted{false};       // see is_contradicted
    std::atomic<bool> lacks_host_blocks{false};  // batches are missing; see lacks_host_blocks
    std::atomic<bool> cleared_host{false};       // a reset may have dropped blocks
    std::atomic<uint64_t> replacements{0};       // see replacements
    uint64_t undecodable = 0;  // residencies that undecodable batches dropped; see OnReset
  };
  Doubts doubts_;
  struct CacheSize {
    uint64_t blocks = 0;
    size_t groups = 0;               // number of groups that have had blocks
    std::atomic<int64_t> tokens{0};  // tokens that these blocks can hold
  };
  CacheSize cache_size_;
  std::atomic<bool> has_components_{false};  // see DecodeCounts::component_fields
  mutable Mutex mutex_;
  SourceCounters counters_ KV_GUARDED_BY(mutex_);
  BlockCounts block_counts_ KV_GUARDED_BY(mutex_);
  std::optional<double> last_batch_ts_ KV_GUARDED_BY(mutex_);
  struct SeenScheme {
    std::shared_ptr<const SchemeVerdict> verdict;  // not nullptr
    SchemeCounters counters;
  };
  SeenScheme scheme_ KV_GUARDED_BY(mutex_);
  ReuseFeedback feedback_ KV_GUARDED_BY(mutex_);
  IndexCounters index_counters_ KV_GUARDED_BY(mutex_);
};

using SourceList = std::vector<std::shared_ptr<WorkerIngest>>;

}  // namespace kvcast::router
