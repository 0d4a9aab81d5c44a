// A simulated engine with host memory. The copies of the engine fail as the test specifies.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "apps/engine/engine_setup.h"
#include "apps/engine/host_tier.h"
#include "apps/engine/sim_engine.h"
#include "apps/support/trace.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/transfer/host_copy_backend.h"

namespace kvcast::tools {

// The outcome of a batch of copies.
enum class Fate : uint8_t {
  kCopied,
  kLost,     // reports "done", but moves no byte
  kFailed,   // fails after it wrote garbage
  kRefused,  // Submit fails
  kLate,     // copied in Wait
};

// Ends each batch in Submit, except a batch with kLate, which Wait copies. `fate` gives the outcome
// of the nth batch of a direction; n counts from 0.
class FaultyBackend final : public CopyBackend {
 public:
  using FateOf = std::function<Fate(CopyDirection, int64_t)>;
  explicit FaultyBackend(FateOf fate) : fate_(std::move(fate)) {}

  std::string_view name() const override { return "faulty"; }
  Result<CopyTicket> Submit(CopyDirection direction, std::span<const CopyOp> ops, void*) override {
    const Fate fate = fate_(direction, batches_[static_cast<size_t>(direction)]++);
    if (fate == Fate::kRefused) return Status(StatusCode::kUnavailable, "refused");
    Batch& batch = tickets_.emplace_back();
    if (fate == Fate::kLate) {
      batch = {CopyState::kRunning, {ops.begin(), ops.end()}};
    } else if (fate == Fate::kFailed) {
      batch.state = CopyState::kFailed;
      for (const CopyOp& op : ops) {
        for (uint32_t row = 0; row < op.rows; ++row) {
          std::memset(op.dst + row * op.dst_pitch, 0xEE, op.row_bytes);
        }
      }
    } else if (fate == Fate::kCopied) {
      Copy(ops);
    }
    return CopyTicket(tickets_.size() - 1);
  }
  CopyState Poll(CopyTicket ticket) override { return tickets_.at(ticket.value).state; }
  CopyState Wait(CopyTicket ticket) override {
    Batch& batch = tickets_.at(ticket.value);
    Copy(std::exchange(batch.late, {}));
    if (batch.state == CopyState::kRunning) batch.state = CopyState::kDone;
    return batch.state;
  }

 private:
  struct Batch {
    CopyState state = CopyState::kDone;
    std::vector<CopyOp> late;
  };

  static void Copy(std::span<const CopyOp> ops) {
    for (const CopyOp& op : ops) {
      for (uint32_t row = 0; row < op.rows; ++row) {
        std::memcpy(op.dst + row * op.dst_pitch, op.src + row * op.src_pitch, op.row_bytes);
      }
    }
  }

  const FateOf fate_;
  int64_t batches_[2] = {};
  std::vector<Batch> tickets_;
};

inline std::unique_ptr<CopyBackend> Faulty(CopyDirection direction, Fate fate,
                                           int64_t batches = INT64_MAX) {
  return std::make_unique<FaultyBackend>([=](CopyDirection of, int64_t number) {
    return of == direction && number < batches ? fate : Fate::kCopied;
  });
}

struct TierOptions {
  std::string model = "full";
  int64_t gpu_blocks = 41;
  int64_t cpu_blocks = 201;
  OffloadKind kind = OffloadKind::kMirrorEager;
  int64_t blocks_per_chunk = 1;
  SimEngineConfig engine;
  std::unique_ptr<CopyBackend> backend = MakeHostCopyBackend({.threads = 1}).value();
};

inline constexpr WorkerId kWorker(1);
inline constexpr int64_t kVocabulary = 1000;

// A simulated engine with host memory, and the reports of the engine. An index applies the engine's
// events.
class Tiered {
 public:
  explicit Tiered(TierOptions setup) : kind_(setup.kind) {
    CacheOptions options;
    options.model = setup.model;
    options.blocks = setup.gpu_blocks;
    auto cache = MakeCacheManager(options);
    EXPECT_TRUE(cache.ok()) << cache.status().ToString();
    hash_block_size_ = (*cache)->config().hash_block_size;
    hasher_ = MakeHasher(options.hash_algorithm, options.hash_seed).value();
    EXPECT_TRUE(index_
                    .AddWorker(kWorker, {.groups = (*cache)->config().groups,
                                         .hash_block_size = hash_block_size_,
                                         .alignment = HitAlignment((*cache)->config()),
                                         .blocks_per_chunk = setup.blocks_per_chunk,
                                         .offload_rule = OffloadRuleOf(setup.kind),
                                         .rules = (*cache)->config().rules})
                    .ok());
    HostTierConfig config;
    config.cpu_blocks = setup.cpu_blocks;
    config.kind = setup.kind;
    config.blocks_per_chunk = setup.blocks_per_chunk;
    auto tier = HostTier::Create(config, **cache, std::move(setup.backend));
    EXPECT_TRUE(tier.ok()) << tier.status().ToString();
    host_ = tier->get();
    SimHooks hooks{.publish =
                       [this](std::vector<Event> events) {
                         num_events += std::ssize(events);
                         if (on_events) on_events(events);
                         index_.Apply(kWorker, EventBatch{.events = std::move(events)});
                         return Seq(++batches_);
                       },
                   .admitted =
                       [this](const Admission& seen) {
                         admissions.push_back(seen);
                         Compare(seen);
                       },
                   .first_token = [](int64_t) {},
                   .finished = [this](int64_t number) { finished.push_back(number); },
                   .refused = [](int64_t) {}};
    engine_ = std::make_unique<SimEngine>(setup.engine, std::move(cache).value(), kVocabulary,
                                          std::move(hooks), std::move(tier).value());
  }

  SimEngine& engine() { return *engine_; }
  HostTier& host() { return *host_; }
  const SimTotals& totals() const { return engine_->totals(); }

  // Prompts with the same `first` have equal tokens up to the end of the shorter prompt.
  void Add(int64_t tokens, TokenId first, int64_t outputs = 1) {
    std::vector<TokenId> prompt(static_cast<size_t>(tokens));
    std::iota(prompt.begin(), prompt.end(), first);
    prompts_.push_back(prompt);
    engine_->Add({std::ssize(prompts_) - 1, std::move(prompt), outputs});
  }
  // Returns the model time in seconds.
  double RunUntilIdle() {
    double seconds = 0;
    for (int step = 0; step < 20000 && !engine_->idle(); ++step) {
      seconds += engine_->Step();
      const Status host = host_->CheckInvariants();
      EXPECT_TRUE(host.ok()) << host.ToString();
    }
    EXPECT_TRUE(engine_->idle());
    return seconds;
  }
  double Serve(int64_t tokens, TokenId first, int64_t outputs = 1) {
    Add(tokens, first, outputs);
    return RunUntilIdle();
  }
  // Runs enough other prompts to fill the GPU, so that the GPU evicts all older blocks.
  void FillGpu() {
    for (int i = 0; i < 6; ++i) Serve(320, next_filler_ += 1000);
  }
  void ExpectAllGivenBack() {
    const CacheUsage gpu = engine_->cache().usage();
    EXPECT_EQ(gpu.free_blocks, gpu.total_blocks);
    EXPECT_EQ(host_->held_blocks(), 0);
    EXPECT_TRUE(engine_->cache().CheckInvariants().ok());
  }

  std::vector<Admission> admissions;
  std::vector<int64_t> finished;
  int64_t num_events = 0;
  std::function<void(const std::vector<Event>&)> on_events;
  int64_t wrong_predictions = 0;  // admissions that differ from the index's prediction

 private:
  void Compare(const Admission& seen) {
    // If the load of a request failed, the connector loads no tokens for this request. No event
    // reports the failure to the index.
    const bool may_have_failed = !seen.first && totals().failed_loads > 0;
    if (kind_ == OffloadKind::kConnector && may_have_failed) return;
    std::vector<TokenId> tokens = prompts_[static_cast<size_t>(seen.number)];
    for (int64_t k = 0; k < seen.sampled_tokens; ++k) {
      tokens.push_back(OutputToken(seen.number, k, kVocabulary));
    }
    std::vector<Digest> digests;
    hasher_->ExtendChain(tokens, hash_block_size_, {}, digests);
    std::vector<BlockHash> chain;
    for (const Digest& digest : digests) {
      chain.push_back(ToEventHash(digest, EventHashForm::kInt64));
    }
    const auto matches = index_.Match(chain, hash_block_size_, std::ssize(tokens));
    ASSERT_EQ(matches.size(), 1u);
    const bool right = matches[0].gpu_tokens == seen.hit_tokens &&
                       matches[0].with_cpu_tokens == seen.hit_tokens + seen.loaded_tokens;
    wrong_predictions += !right;
  }

  const OffloadKind kind_;
  HostTier* host_ = nullptr;
  std::unique_ptr<SimEngine> engine_;
  uint64_t batches_ = 0;
  PrefixIndex index_;
  std::optional<BlockHasher> hasher_;
  int64_t hash_block_size_ = 0;
  std::vector<std::vector<TokenId>> prompts_;  // by number
  TokenId next_filler_ = 1'000'000;
};

}  // namespace kvcast::tools
