// EngineFollower: a drawn engine and the router's source that follows it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

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

  // Runs one step of the engine. The source applies the events of the step. REQUIRES: registered().
  void Step() {
    std::vector<uint8_t> payload;
    ASSERT_TRUE(EncodeBatch(engine_.Step(), dialect_, payload).ok());
    sources_[0]->OnBatch(payload);
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
  PrefixIndex index_;
  RandomEngine engine_;
  const Dialect dialect_;
  router::SourceList sources_;
};

}  // namespace kvcast::engine
