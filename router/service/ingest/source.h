// Source: one followed worker between the subscriber and the index.
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
#include "router/service/ingest/block_tally.h"
#include "router/service/ingest/found_names.h"
#include "router/service/ingest/hash_scheme.h"
#include "router/service/ingest/load_rates.h"
#include "router/service/ingest/mooncake_events.h"
#include "router/service/ingest/reuse_feedback.h"
#include "router/service/ingest/trtllm_events.h"
#include "src/base/mutex.h"

namespace kvcast::router {

// What the payloads of a source hold.
enum class EventFormat : uint8_t {
  kEngine,    // an engine's batches; see kvcast/wire.h
  kMooncake,  // see mooncake_events.h
  kTrtllm,    // see trtllm_events.h
};

// A worker to follow, as the operator describes it.
struct RouterSource {
  // Where its publisher's PUB listens; for kTrtllm also a URL that is polled, or kPushEndpoint.
  std::string endpoint;
  std::string replay_endpoint;  // its ROUTER; empty: gaps cannot be closed
  std::string topic;            // subscription prefix; empty: all
  bool bind = false;            // its PUB connects; see SourceConfig
  // The engine's GPU blocks that can hold prefixes: of vLLM num_gpu_blocks - 1, as it never uses
  // block 0. A group with more copies proves that removes were missed (checked where there is a
  // replay endpoint). So many known blocks prove that nothing is missing. 0: not known.
  int64_t gpu_blocks = 0;
  WorkerConfig worker;  // name (unique, not empty), groups, hash unit, alignment
  // How the engine hashes; for queries by tokens. Verified; what is not given is found out.
  std::optional<HashAlgorithm> algorithm;
  std::optional<std::string> hash_seed;  // the engine's PYTHONHASHSEED
  std::vector<uint8_t> none_hash;        // NONE_HASH as raw bytes; where given, instead of a seed
  // Tried besides it and kWellKnownHashSeeds.
  std::vector<std::string> candidate_seeds;
  std::vector<std::vector<uint8_t>> candidate_none_hashes;
  // What the worker serves and how it is known to others; for selection and display.
  std::string model;
  std::string instance;  // empty: the name
  bool instance_is_number = false;
  int64_t block_size = 0;  // as the field's API registers it; shown, and not relied on
  std::string routing_group = "default";
  int64_t data_parallel_rank = 0;
  // So many ranks from data_parallel_rank on, each a worker of its own; see ExpandRanks.
  int64_t data_parallel_size = 1;
  // The endpoint has batches (TensorRT-LLM: events) of several ranks, under one sequence of
  // numbers. Those that do not name data_parallel_rank are left out.
  bool rank_by_tag = false;
  EventFormat format = EventFormat::kEngine;
  MooncakeConfig mooncake;  // format kMooncake
  TrtllmConfig trtllm;      // format kTrtllm; its rank is that of rank_by_tag
  int64_t poll_ms = 50;     // between two polls
  // Path of each LoRA adapter, by name: vLLM hashes it since 0.31 and announces it nowhere.
  std::map<std::string, std::string> lora_paths;
  LoadRateConfig load_rates;
};

struct SourceCounters {
  DecodeCounts decode;
  uint64_t undecodable_batches = 0;
  uint64_t restarts = 0;       // of the engine: epochs that ended
  uint64_t losses = 0;         // resets because batches were lost for good
  uint64_t dropped_names = 0;  // prompts whose names did not fit; see FoundNames
  // rank_by_tag: of other ranks, and without a rank though they hold events.
  uint64_t other_rank_batches = 0;
  uint64_t untagged_batches = 0;
  std::optional<MooncakeCounters> mooncake;
  std::optional<TrtllmCounters> trtllm;
};

// What came and was applied, on the subscriber's thread; borrowed for the call.
struct AppliedBatch {
  Seq seq;
  const EventBatch& batch;
  std::span<const size_t> left_out;  // positions of events that only repeat what is there
};

// One source for each data-parallel rank from data_parallel_rank on: NAME-dp0, NAME-dp1, ... of one
// instance. Their ports are those of EndpointForRank, or with rank_by_tag the same. Ranks on
// several nodes are a source for each node. A source of one rank is left as it is.
// kInvalidArgument: an endpoint has no port for the rank.
Result<std::vector<RouterSource>> ExpandRanks(const RouterSource& source);

class Source {
 public:
  // Registers the worker with `index`, which must outlive the source.
  static Result<std::unique_ptr<Source>> Create(WorkerId id, const RouterSource& config,
                                                PrefixIndex& index);

  WorkerId id() const { return id_; }
  const std::string& name() const { return name_; }
  const std::string& model() const { return model_; }

  // Sees what is applied. Set before the first batch.
  void set_observer(std::function<void(const AppliedBatch&)> observer) {
    observer_ = std::move(observer);
  }

  // The subscriber's thread; see ReplicaSink.
  BatchResult OnBatch(std::span<const uint8_t> payload, Seq seq = Seq());
  void OnReset(ResetReason reason);
  void BeginSnapshot() { replica_.BeginSnapshot(); }
  void BeginRepair(uint64_t buckets) { replica_.BeginRepair(buckets); }
  bool AddToSnapshot(std::span<const uint8_t> payload) { return replica_.AddToSnapshot(payload); }
  bool CommitSnapshot(const PublisherStatus& status);
  void DropSnapshot() { replica_.DropSnapshot(); }
  DigestVerdict Compare(const PublisherStatus& status) const {
    return rank_by_tag_ ? DigestVerdict::kUnknown : replica_.Compare(status);
  }
  uint64_t DifferingBuckets(const PublisherStatus& status) const {
    return replica_.DifferingBuckets(status);
  }

  // Thread-safe from here on.
  // What the engine really had of what was promised for a request. True: this and the answers
  // before it refute the source's state. `comparable`: nothing but reuse_contradiction() can have
  // spoken against the answer, and no batch lay between it and the engine's lookup.
  bool NoteReuse(int64_t promised_tokens, int64_t cached_tokens, bool comparable);
  // See ReuseFeedback::contradiction.
  std::optional<int64_t> reuse_contradiction() const;
  // GPU blocks that can hold prefixes, as told; 0: not told.
  int64_t gpu_blocks() const { return gpu_blocks_; }
  // What the stores have, or as long as that is not known what is registered, by default vLLM's own
  // scheme. The form of hash is taken from the first store; integers until then.
  HashScheme scheme() const;
  SchemeVerdict verdict() const;
  SchemeCounters scheme_counters() const;
  // Why the engine's own lookup may say something else, although its blocks are known. Empty: it
  // does not.
  std::string_view rule_doubt() const;
  // What queries have found out of the worker's blocks. Named beside the next batch.
  void OfferNames(FoundNames names) { found_names_.Offer(std::move(names)); }
  // The path of an adapter; empty: not told.
  std::string lora_path(const std::string& name) const;
  SourceCounters counters() const;
  std::vector<GroupTally> group_tallies() const;
  // The worker's own time stamp on the last batch that was applied, seconds since the epoch;
  // nullopt: none yet, or the format has none.
  std::optional<double> last_batch_ts() const;
  // Those of the index after the last batch, snapshot or reset.
  IndexCounters index_counters() const;
  // The stream's state; kSuspect if batches or events came that could not be decoded, because the
  // index may then hold what the engine does not.
  SourceState State(SourceState stream) const;

 private:
  Source(WorkerId id, const RouterSource& config, PrefixIndex& index, SchemeDetector detector,
         HashScheme assumed);
  bool Decode(std::span<const uint8_t> payload, DecodeCounts& counts);
  bool DecodeMooncake(std::span<const uint8_t> payload, DecodeCounts& counts);
  bool DecodeTrtllm(std::span<const uint8_t> payload, DecodeCounts& counts);
  bool LeaveOtherRanks();
  void ClearHostMemoryToo();
  void LeaveContentOfConnector();
  bool IsComplete(const IndexCounters& now) const;
  void NoteWideStores(const DecodeCounts& counts);
  void NoteIndexCounters(const IndexCounters& now);
  void NameFound();
  void NoteHashForm();
  void NoteScheme();
  void LearnUnit(int64_t unit);

  const WorkerId id_;
  const std::string name_;
  const std::string model_;
  PrefixIndex& index_;
  Replica replica_;
  const int64_t gpu_blocks_;
  const bool unit_registered_;
  const HashScheme assumed_;  // until the scheme is known
  const std::map<std::string, std::string> lora_paths_;
  const bool rank_by_tag_;
  const int64_t rank_;
  const std::string_view rule_doubt_;
  const bool may_be_connector_;  // vLLM's, which describes host memory without extra keys
  std::function<void(const AppliedBatch&)> observer_;
  FoundNamesQueue found_names_;
  // The subscriber's thread.
  EventBatch batch_;
  bool began_ = false;       // the engine's present life: a batch or a snapshot of it was applied
  bool has_keys_ = false;    // a store of it had extra keys
  bool is_hicache_ = false;  // it has stored in SGLang's host memory
  bool is_wide_ = false;     // the index knows that its stores have lookahead
  SchemeDetector detector_;
  std::optional<MooncakeEvents> mooncake_;  // if that is the format
  std::optional<TrtllmEvents> trtllm_;      // if that is the format
  std::atomic<EventHashForm> form_{EventHashForm::kInt64};
  std::atomic<bool> inexact_{false};
  std::atomic<bool> has_components_{false};  // see DecodeCounts::component_fields
  mutable Mutex mutex_;
  SourceCounters counters_ KV_GUARDED_BY(mutex_);
  BlockTally tally_ KV_GUARDED_BY(mutex_);
  std::optional<double> last_batch_ts_ KV_GUARDED_BY(mutex_);
  SchemeVerdict verdict_ KV_GUARDED_BY(mutex_);
  SchemeCounters scheme_counters_ KV_GUARDED_BY(mutex_);
  ReuseFeedback feedback_ KV_GUARDED_BY(mutex_);
  IndexCounters index_counters_ KV_GUARDED_BY(mutex_);
};

using SourceList = std::vector<std::shared_ptr<Source>>;

}  // namespace kvcast::router
