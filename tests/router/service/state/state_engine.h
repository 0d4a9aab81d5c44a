// StateEngine: an engine that a router follows. It checks the router's answers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvcast/stream/publisher.h"
#include "router/service/ingest/worker_registration.h"
#include "router/service/route/query.h"
#include "router/service/router_service.h"
#include "tests/router/service/peer_engine.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::testing {

// An engine with a full group and a window group, and its publisher.
struct StateEngine {
  explicit StateEngine(uint32_t seed, bool extension = true, PublisherConfig config = {})
      : has_epochs(extension), cache({PeerFull(), PeerWindow(12)}, 96, seed, EventOptions()) {
    if (config.replay_endpoint.empty()) {
      config.endpoint = config.replay_endpoint = "tcp://127.0.0.1:0";
    }
    config.extension = extension;
    publisher = Publisher::Create(config).value();
  }
  // Computes `turns` prompts.
  void Run(int turns) {
    for (; turns > 0; --turns) {
      EventBatch batch;
      batch.ts = ++now;
      served.push_back(cache.NextPrompt());
      batch.events = cache.Run(served.back());
      ASSERT_TRUE(publisher->Publish(std::move(batch)).ok());
    }
  }
  // Another run of the engine, at the same endpoints.
  std::unique_ptr<StateEngine> Restart(uint32_t seed) {
    PublisherConfig config;
    config.endpoint = publisher->endpoint();
    config.replay_endpoint = publisher->replay_endpoint();
    publisher.reset();
    return std::make_unique<StateEngine>(seed, has_epochs, config);
  }
  router::WorkerRegistration Source(const std::string& name = "engine") const {
    router::WorkerRegistration source;
    source.worker.name = name;
    source.worker.groups = {PeerFull(), PeerWindow(12)};
    source.worker.rules = EngineRules::kV033;
    source.worker.hit_reports = HitReports::kNever;
    source.endpoint = publisher->endpoint();
    source.replay_endpoint = publisher->replay_endpoint();
    return source;
  }

  // Returns a query. Its prompt begins like one of the latest prompts.
  router::Query NextQuery() {
    const auto& earlier =
        served[served.size() - 1 - cache.Below(std::min<size_t>(served.size(), 20))];
    router::Query query;
    query.tokens.assign(
        earlier.begin(),
        earlier.end() - static_cast<std::ptrdiff_t>(cache.Below(9)) % std::ssize(earlier));
    query.tokens.push_back(77);
    query.prompt_tokens = std::ssize(query.tokens);
    return query;
  }

  // Waits until worker `i` of the router is synced with the latest batch. Also waits until the
  // epoch of the publisher is known, and its digests were compared. Before this, a snapshot may
  // replace a synced state, and the state cannot be saved.
  bool AwaitFollowed(const router::RouterService& service, size_t i = 0) const {
    return stream::Eventually([&] {
      const router::WorkerReport worker = service.workers().at(i);
      const bool compared = !has_epochs || worker.stream.digest_checks > 0;
      return compared && worker.state == SourceState::kSynced &&
             worker.stream.next_seq >= publisher->next_seq().value;
    });
  }
  // The answers to `prompts` prompts must be exact, and equal the engine's own lookup.
  void ExpectExactAnswers(router::RouterService& service, int prompts) {
    int hits = 0;
    for (int i = 0; i < prompts; ++i) {
      const router::Query query = NextQuery();
      const auto answers = service.Ask(query);
      ASSERT_TRUE(answers.ok()) << answers.status().ToString();
      const int64_t hit = cache.Lookup(query.tokens);
      const router::QueryAnswer& answer = answers->at(0).answer;
      ASSERT_TRUE(answer.exact) << answer.reason;
      ASSERT_EQ(answer.match.gpu_tokens, hit);
      hits += hit > 0;
    }
    EXPECT_GT(hits, prompts / 4);
  }

  bool has_epochs = true;
  PeerEngine cache;
  std::vector<std::vector<TokenId>> served;
  std::unique_ptr<Publisher> publisher;
  double now = 1'790'000'000;
};

}  // namespace kvcast::testing
