// EngineFollower: a drawn engine and the router's source that follows it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "kvcast/core/redact.h"
#include "kvcast/engine/chain_prover.h"
#include "router/service/ingest/worker_ingest.h"
#include "router/service/route/query_engine.h"
#include "tests/router/exactness/drawn_engine.h"

namespace kvcast::engine {

class EngineFollower {
 public:
  EngineFollower(Random& random, const Drawn& drawn, const CacheConfig& cache, Dialect dialect)
      : engine_(random, TestEngine(cache, drawn.events, drawn.algorithm, drawn.seed), drawn.images,
                drawn.reports, drawn.drafts),
        dialect_(dialect) {}

  // Must be called before Step. A refused registration leaves the engine without a source.
  void Register(const router::WorkerRegistration& registration) {
    auto source = router::WorkerIngest::Create(WorkerId(0), registration, index_);
    if (source.ok()) sources_.push_back(std::move(source).value());
  }
  bool registered() const { return !sources_.empty(); }

  // From now on, the events carry hashes only. The engine answers a challenge. REQUIRES:
  // registered().
  void PublishHashesOnly(const Drawn& drawn, const CacheConfig& cache) {
    hashes_only_ = true;
    auto hasher = BlockHasher::FromSeed(drawn.algorithm, drawn.seed);
    const auto prover = ChainProver::Create(cache, std::move(hasher).value(), drawn.events);
    ASSERT_TRUE(prover.ok()) << prover.status().ToString();
    const EventBatch answer = (*prover)->Answer(sources_[0]->BeginChallenge());
    sources_[0]->OnChallengeAnswer(PayloadOf(answer));
    ASSERT_EQ(sources_[0]->counters().challenges.answered, 1u);
  }

  // Runs one step of the engine. The source applies the events of the step. REQUIRES: registered().
  void Step() {
    EventBatch batch = engine_.Step();
    if (hashes_only_) Redact(batch);
    sources_[0]->OnBatch(PayloadOf(batch));
  }
  static router::Query QueryOf(const CacheRequest& request) {
    router::Query query;
    query.tokens = request.tokens;
    query.prompt_tokens = std::ssize(request.tokens);
    query.inputs = request.hash_inputs;
    query.inputs.lora_path.clear();  // the router takes the path from the registration
    return query;
  }
  router::QueryAnswer Ask(const router::Query& query) const {
    const router::QueryEngine queries(
        index_, [](WorkerId) { return SourceStatus{.state = SourceState::kSynced}; });
    return queries.Answer(query, sources_).value().at(0);
  }

  RandomEngine& engine() { return engine_; }

 private:
  std::vector<uint8_t> PayloadOf(const EventBatch& batch) const {
    std::vector<uint8_t> payload;
    EXPECT_TRUE(EncodeBatch(batch, dialect_, payload).ok());
    return payload;
  }

  PrefixIndex index_;
  RandomEngine engine_;
  const Dialect dialect_;
  bool hashes_only_ = false;
  router::SourceList sources_;
};

}  // namespace kvcast::engine
