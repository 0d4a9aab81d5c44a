// If an engine reuses nothing, the diagnosis names the cause and the group. For each of the six
// causes, the router follows an engine with this cause.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/router/prefix_index.h"
#include "kvcast/wire/wire.h"
#include "router/service/ingest/worker_ingest.h"
#include "router/service/route/reuse_answers.h"
#include "tests/support/engine_testing.h"

namespace kvcast::engine {
namespace {

using enum ReuseCause;
using Tokenized = std::vector<TokenId>;

constexpr int64_t kRequests = 12;  // more than kMinTestedPrompts

Tokenized Shared(int64_t tokens) { return Tokens(tokens, 1); }
// Tokens that no other request has.
Tokenized Own(int64_t request, int64_t tokens) {
  return Tokens(tokens, static_cast<TokenId>(100'000 * (request + 1)));
}

// An engine, and a router that follows it.
class Followed {
 public:
  explicit Followed(const CacheConfig& config, const router::WorkerRegistration& source = {})
      : engine_(config) {
    router::WorkerRegistration named = source;
    named.worker.name = "worker";
    auto created = router::WorkerIngest::Create(kWorker, named, index_);
    EXPECT_TRUE(created.ok()) << created.status().ToString();
    source_ = std::move(created).value();
  }

  // Runs a request from admission to its end, computed in one step or in steps of `step` tokens.
  // Returns the reused tokens.
  int64_t Serve(Tokenized tokens, const HashInputs& inputs = {}, int64_t step = 0) {
    CacheRequest request = Request(std::to_string(next_++), std::move(tokens));
    request.hash_inputs = inputs;
    if (!inputs.lora_name.empty()) request.lora_id = 7;
    engine_.cache().BeginStep();
    const PrefixHit hit = engine_.Lookup(request);
    const int64_t total = std::ssize(request.tokens);
    int64_t computed = hit.tokens;
    for (bool first = true; computed < total; first = false) {
      const int64_t tokens_now = step == 0 ? total - computed : std::min(step, total - computed);
      AllocateArgs args = {.new_tokens = tokens_now};
      if (first) {
        args.hit = &hit;
      } else {
        args.computed_tokens = computed;
      }
      EXPECT_TRUE(engine_.Allocate(request, args));
      computed += tokens_now;
      Publish();
    }
    engine_.Free(request);
    Publish();
    reused_ += hit.tokens;
    return hit.tokens;
  }
  // Evicts the blocks of `group` that a lookup of the prompt finds.
  void EvictGroup(Tokenized tokens, uint32_t group) {
    CacheRequest request = Request("evicted", std::move(tokens));
    engine_.cache().BeginStep();
    const PrefixHit hit = engine_.Lookup(request);
    for (const BlockId block : hit.blocks[group]) {
      if (block.value != 0) engine_.Evict(block.value);
    }
    Publish();
  }
  void Publish() {
    EventBatch batch;
    batch.events = engine_.cache().TakeEvents();
    if (hidden_group_) {
      std::erase_if(batch.events, [&](const Event& event) {
        const auto* stored = std::get_if<BlockStored>(&event);
        const auto* removed = std::get_if<BlockRemoved>(&event);
        return (stored != nullptr && stored->group_idx == hidden_group_) ||
               (removed != nullptr && removed->group_idx == hidden_group_);
      });
    }
    for (Event& event : batch.events) {
      auto* stored = std::get_if<BlockStored>(&event);
      if (stored != nullptr && stored->lora_id) stored->lora_name = lora_name_;
    }
    std::vector<uint8_t> payload;
    ASSERT_TRUE(EncodeBatch(batch, kDefaultDialect, payload).ok());
    source_->OnBatch(payload, Seq(seq_++));
  }
  void HideGroup(int64_t group) { hidden_group_ = group; }
  void SetLoraName(std::string name) { lora_name_ = std::move(name); }

  ReuseDiagnosis Diagnose() const { return index_.Diagnose(kWorker); }
  int64_t reused() const { return reused_; }
  PrefixIndex& index() { return index_; }

 private:
  static constexpr WorkerId kWorker{3};
  PrefixIndex index_;
  TestEngine engine_;
  std::unique_ptr<router::WorkerIngest> source_;
  std::optional<int64_t> hidden_group_;
  std::string lora_name_;
  uint64_t seq_ = 0;
  int64_t next_ = 0;
  int64_t reused_ = 0;
};

router::WorkerRegistration RegistrationOf(const CacheConfig& config) {
  router::WorkerRegistration source;
  source.worker.groups = config.groups;
  return source;
}

std::string Describe(const ReuseDiagnosis& diagnosis) {
  std::string text = "tested " + std::to_string(diagnosis.tested) + " lost " +
                     std::to_string(diagnosis.lost) + " alignment " +
                     std::to_string(diagnosis.alignment) + "/" +
                     std::to_string(diagnosis.group_alignment);
  for (size_t i = 0; i < kReuseCauses; ++i) {
    text += " " + std::string(ReuseCauseName(static_cast<ReuseCause>(i))) + " " +
            std::to_string(diagnosis.lost_by_cause[i]);
  }
  for (const auto& group : diagnosis.groups) {
    text +=
        " (held " + std::to_string(group.held) + " usable " + std::to_string(group.usable) + ")";
  }
  return text;
}

// Expects the cause, and the limiting group; -1: no group.
void ExpectNamed(const ReuseDiagnosis& diagnosis, ReuseCause cause, int64_t group) {
  ASSERT_TRUE(diagnosis.cause) << Describe(diagnosis);
  EXPECT_EQ(ReuseCauseName(*diagnosis.cause), ReuseCauseName(cause)) << Describe(diagnosis);
  EXPECT_EQ(diagnosis.group.value_or(-1), group) << Describe(diagnosis);
}

// ---- The six causes.

// The events of the second group do not reach the router, but the group is registered.
TEST(ReuseDiagnosis, AGroupThatNoStoreNamesWasNeverAnnounced) {
  const CacheConfig config = Config({Full(), Window(32)}, 1000);
  Followed worker(config, RegistrationOf(config));
  worker.HideGroup(1);
  for (int64_t i = 0; i < kRequests; ++i) worker.Serve(Concat(Shared(96), Own(i, 64)));
  EXPECT_GT(worker.reused(), 0) << "the engine holds the blocks of both groups";
  const ReuseDiagnosis diagnosis = worker.Diagnose();
  ExpectNamed(diagnosis, kNeverAnnounced, 1);
  EXPECT_GT(diagnosis.total().held, 0);
  EXPECT_EQ(diagnosis.total().usable, 0);
}

// A Mamba group in mode "align" keeps the state at the last boundary of a prompt. This boundary
// lies after the prefix that the prompts share.
TEST(ReuseDiagnosis, AStateThatIsKeptBehindTheSharedPrefixWasNeverStored) {
  const CacheConfig config = Config({Full(), Mamba(MambaMode::kAlign)}, 1000);
  Followed worker(config, RegistrationOf(config));
  for (int64_t i = 0; i < kRequests; ++i) worker.Serve(Concat(Shared(100), Own(i, 64)), {}, 160);
  EXPECT_EQ(worker.reused(), 0);
  const ReuseDiagnosis diagnosis = worker.Diagnose();
  ExpectNamed(diagnosis, kNeverStored, 1);
  EXPECT_GT(diagnosis.total().usable, 0)
      << "a prompt that repeats another whole prompt can use blocks";
}

TEST(ReuseDiagnosis, AGroupThatLosesItsBlocksFirstIsNamed) {
  const CacheConfig config = Config({Full(), Window(32)}, 2000);
  Followed worker(config, RegistrationOf(config));
  for (int64_t i = 0; i < kRequests; ++i) {
    worker.Serve(Own(i, 160));
    for (int64_t tokens = 160; tokens > 16; tokens -= 16) {
      Tokenized prefix = Own(i, tokens + 1);
      prefix.back() = -1;
      worker.EvictGroup(std::move(prefix), 1);
    }
  }
  const ReuseDiagnosis diagnosis = worker.Diagnose();
  ExpectNamed(diagnosis, kEvictedFirst, 1);
}

// The prompts share 96 tokens, and a hit must end at a multiple of 128 tokens.
TEST(ReuseDiagnosis, AGridCoarserThanTheSharedPrefixIsNamed) {
  const CacheConfig config = Config({Full(16), Window(128, 128)}, 1000);
  Followed worker(config, RegistrationOf(config));
  for (int64_t i = 0; i < kRequests; ++i) worker.Serve(Concat(Shared(96), Own(i, 100)));
  EXPECT_EQ(worker.reused(), 0);
  ExpectNamed(worker.Diagnose(), kAlignmentTooCoarse, 1);
}

TEST(ReuseDiagnosis, ARegisteredAlignmentThatTheBlocksDoNotHaveIsNamed) {
  const CacheConfig config = Config({Full(), Window(32)}, 1000);
  router::WorkerRegistration source = RegistrationOf(config);
  source.worker.alignment = 1024;
  Followed worker(config, source);
  for (int64_t i = 0; i < kRequests; ++i) worker.Serve(Concat(Shared(96), Own(i, 64)));
  EXPECT_GT(worker.reused(), 0) << "the engine reuses tokens that the router does not predict";
  ExpectNamed(worker.Diagnose(), kToldAlignmentWrong, -1);
}

TEST(ReuseDiagnosis, ASaltOfItsOwnForEachRequestIsNamed) {
  const CacheConfig config = Config({Full(), Window(32)}, 1000);
  Followed worker(config, RegistrationOf(config));
  for (int64_t i = 0; i < kRequests; ++i) {
    worker.Serve(Concat(Shared(96), Own(i, 64)), {.cache_salt = "request " + std::to_string(i)});
  }
  EXPECT_EQ(worker.reused(), 0);
  ExpectNamed(worker.Diagnose(), kKeyDiffers, -1);
}

TEST(ReuseDiagnosis, AnAdapterOfItsOwnForEachRequestIsNamed) {
  const CacheConfig config = Config({Full(), Window(32)}, 1000);
  Followed worker(config, RegistrationOf(config));
  for (int64_t i = 0; i < kRequests; ++i) {
    const std::string adapter = "adapter " + std::to_string(i);
    worker.SetLoraName(adapter);
    worker.Serve(Concat(Shared(96), Own(i, 64)), {.lora_name = adapter});
  }
  EXPECT_EQ(worker.reused(), 0);
  ExpectNamed(worker.Diagnose(), kKeyDiffers, -1);
}

// ---- Cases without a cause.

TEST(ReuseDiagnosis, AHealthyHybridModelHasNoCause) {
  const CacheConfig config = Config({Full(), Window(32), Mamba(MambaMode::kAll)}, 4000);
  for (const bool registered : {true, false}) {
    Followed worker(config, registered ? RegistrationOf(config) : router::WorkerRegistration());
    for (int64_t i = 0; i < 2 * kRequests; ++i) {
      worker.Serve(Concat(Shared(96), Own(i, 64)), {}, 32);
    }
    EXPECT_GT(worker.reused(), 0);
    const ReuseDiagnosis diagnosis = worker.Diagnose();
    EXPECT_TRUE(diagnosis.enough_data()) << Describe(diagnosis);
    EXPECT_FALSE(diagnosis.cause) << Describe(diagnosis);
    EXPECT_EQ(diagnosis.lost, 0) << Describe(diagnosis);
    EXPECT_GT(diagnosis.total().usable * 10, diagnosis.total().held * 9) << Describe(diagnosis);
  }
}

// Each turn of a conversation continues the previous turn.
TEST(ReuseDiagnosis, ReusedConversationsHaveNoCause) {
  const CacheConfig config = Config({Full(), Window(32)}, 4000);
  Followed worker(config, RegistrationOf(config));
  for (int64_t i = 0; i < kRequests; ++i) {
    for (int64_t turn = 1; turn <= 3; ++turn) worker.Serve(Own(i, 48 * turn + 1));
  }
  EXPECT_GT(worker.reused(), 0);
  const ReuseDiagnosis diagnosis = worker.Diagnose();
  EXPECT_TRUE(diagnosis.enough_data()) << Describe(diagnosis);
  EXPECT_FALSE(diagnosis.cause) << Describe(diagnosis);
}

// Tenants return with the same salt, so their prompts have hits.
TEST(ReuseDiagnosis, ReusedSaltsHaveNoCause) {
  const CacheConfig config = Config({Full(), Window(32)}, 4000);
  Followed worker(config, RegistrationOf(config));
  for (int64_t i = 0; i < 2 * kRequests; ++i) {
    worker.Serve(Concat(Shared(96), Own(i, 64)), {.cache_salt = "tenant " + std::to_string(i % 3)});
  }
  EXPECT_GT(worker.reused(), 0);
  const ReuseDiagnosis diagnosis = worker.Diagnose();
  EXPECT_TRUE(diagnosis.enough_data()) << Describe(diagnosis);
  EXPECT_FALSE(diagnosis.cause) << Describe(diagnosis);
}

TEST(ReuseDiagnosis, FewRequestsAreNotEnough) {
  const CacheConfig config = Config({Full(), Mamba(MambaMode::kAlign)}, 1000);
  Followed worker(config, RegistrationOf(config));
  for (int64_t i = 0; i < kMinTestedPrompts - 1; ++i) {
    worker.Serve(Concat(Shared(100), Own(i, 64)));
  }
  const ReuseDiagnosis diagnosis = worker.Diagnose();
  EXPECT_FALSE(diagnosis.enough_data()) << Describe(diagnosis);
  EXPECT_FALSE(diagnosis.cause) << Describe(diagnosis);
  EXPECT_GT(diagnosis.lost, 0) << "the tested prompts are lost";
}

TEST(ReuseDiagnosis, AnUnknownWorkerHasNoFindings) {
  PrefixIndex index;
  EXPECT_FALSE(index.Diagnose(WorkerId(1)).enough_data());
}

// ---- Reuse that engines report.

std::vector<router::ReuseAnswer> Answers(int64_t promised, int64_t reused, int64_t count) {
  return {static_cast<size_t>(count), router::ReuseAnswer{promised, reused}};
}

TEST(ReuseDiagnosis, LearnedGroupsThatServeNothingLackAGroup) {
  const CacheConfig config = Config({Full(), Window(32)}, 1000);
  Followed worker(config);
  worker.HideGroup(1);
  for (int64_t i = 0; i < kRequests; ++i) worker.Serve(Concat(Shared(96), Own(i, 64)));
  ReuseDiagnosis diagnosis = worker.Diagnose();
  EXPECT_FALSE(diagnosis.cause) << "the announced group serves hits";
  router::ApplyAnswers(Answers(96, 0, kMinTestedPrompts - 1), diagnosis);
  EXPECT_FALSE(diagnosis.cause) << "too few answers";
  router::ApplyAnswers(Answers(96, 0, kMinTestedPrompts), diagnosis);
  ExpectNamed(diagnosis, kNeverAnnounced, -1);
}

TEST(ReuseDiagnosis, AGroupNumberWithoutStoresWasNeverAnnounced) {
  const CacheConfig config = Config({Full(), Window(32), Full()}, 1000);
  Followed worker(config);
  worker.HideGroup(1);
  for (int64_t i = 0; i < kRequests; ++i) worker.Serve(Concat(Shared(96), Own(i, 64)));
  ReuseDiagnosis diagnosis = worker.Diagnose();
  router::ApplyAnswers(Answers(96, 0, kMinTestedPrompts), diagnosis);
  ExpectNamed(diagnosis, kNeverAnnounced, 1);
}

TEST(ReuseDiagnosis, HitsThatTheEngineRoundsDownShowARegisteredAlignmentThatIsTooFine) {
  const CacheConfig config = Config({Full(16), Full(64)}, 1000);
  router::WorkerRegistration source = RegistrationOf(config);
  source.worker.alignment = 16;
  Followed worker(config, source);
  for (int64_t i = 0; i < kRequests; ++i) worker.Serve(Concat(Shared(112), Own(i, 64)));
  ReuseDiagnosis diagnosis = worker.Diagnose();
  EXPECT_FALSE(diagnosis.cause) << Describe(diagnosis);
  router::ApplyAnswers(Answers(112, 64, kMinTestedPrompts), diagnosis);
  ExpectNamed(diagnosis, kToldAlignmentWrong, -1);
}

TEST(ReuseDiagnosis, CorrectPredictionsHaveNoCause) {
  const CacheConfig config = Config({Full(), Window(32)}, 1000);
  Followed worker(config);
  for (int64_t i = 0; i < kRequests; ++i) worker.Serve(Concat(Shared(96), Own(i, 64)));
  ReuseDiagnosis diagnosis = worker.Diagnose();
  router::ApplyAnswers(Answers(96, 96, kRequests), diagnosis);
  EXPECT_FALSE(diagnosis.cause);
}

}  // namespace
}  // namespace kvcast::engine
