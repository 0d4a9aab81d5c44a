// The service reports in /v1/state and in its metrics why a worker's prefixes are not reused. It
// also reports the predicted and observed tokens.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kvcast/stream/publisher.h"
#include "router/service/json/json_fields.h"
#include "router/service/route/reuse_watch.h"
#include "router/service/router_service.h"
#include "tests/support/engine_testing.h"

namespace kvcast::router {
namespace {

// Returns the batches of an engine with full attention and the group `second`. The prompts share a
// prefix. A Mamba group in mode "align" keeps its only state after the shared prefix, so nothing is
// reused. With a window group, the prefix is reused.
std::vector<EventBatch> StoresOf(const GroupSpec& second, int64_t requests) {
  engine::TestEngine engine(engine::Config({engine::Full(), second}, 1000));
  std::vector<EventBatch> batches;
  for (int64_t i = 0; i < requests; ++i) {
    const auto own = engine::Tokens(64, static_cast<TokenId>(100'000 * (i + 1)));
    auto request = engine::Request(std::to_string(i), engine::Concat(engine::Tokens(96, 1), own));
    engine.cache().BeginStep();
    engine.Start(request);
    engine.Free(request);
    batches.emplace_back().events = engine.cache().TakeEvents();
  }
  return batches;
}

struct ReuseServiceTest : ::testing::Test {
  void Follow(const GroupSpec& second) {
    PublisherConfig config;
    config.endpoint = "tcp://127.0.0.1:0";
    config.replay_endpoint = "tcp://127.0.0.1:0";
    publisher = Publisher::Create(config).value();
    RouterOptions options;
    WorkerRegistration& source = options.sources.emplace_back();
    source.endpoint = publisher->endpoint();
    source.replay_endpoint = publisher->replay_endpoint();
    source.worker.name = "engine";
    source.worker.groups = {engine::Full(), second};
    service = RouterService::Start(options).value();
  }
  httplib::Client Client() const {
    httplib::Client client("127.0.0.1", service->http_port());
    client.set_read_timeout(60);
    return client;
  }
  Json Reuse() const {
    const auto reply = Client().Get("/v1/state");
    return reply ? Json::parse(reply->body).at("workers").at(0).at("reuse") : Json();
  }
  // Polls until `done` holds, because the service evaluates reuse only about once a second. Fails
  // after a minute.
  Json ReuseUntil(const std::function<bool(const Json&)>& done) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    Json reuse = Reuse();
    while (!done(reuse) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      reuse = Reuse();
    }
    EXPECT_TRUE(done(reuse)) << reuse.dump();
    return reuse;
  }

  std::unique_ptr<Publisher> publisher;
  std::unique_ptr<RouterService> service;
};

TEST_F(ReuseServiceTest, NamesTheCauseAndTheGroup) {
  Follow(engine::Mamba(MambaMode::kAlign));
  EXPECT_EQ(Reuse().at("cause"), "not_enough_data");
  EXPECT_EQ(Reuse().at("usable_share"), nullptr);
  for (const EventBatch& batch : StoresOf(engine::Mamba(MambaMode::kAlign), 12)) {
    ASSERT_TRUE(publisher->Publish(batch).ok());
  }
  const Json reuse = ReuseUntil([](const Json& now) { return now.at("tested_prompts") == 12; });
  EXPECT_EQ(reuse.at("cause"), "never_stored");
  EXPECT_EQ(reuse.at("group"), 1);
  EXPECT_EQ(reuse.at("group_kind"), "mamba");
  EXPECT_EQ(reuse.at("lost_prompts"), 12);
  EXPECT_EQ(reuse.at("lost_by_cause").at("never_stored"), 12);
  EXPECT_EQ(reuse.at("explanation"),
            "group 1 (mamba) stores no block that a hit on the prompts' prefixes needs");
  const std::string page = Client().Get("/metrics")->body;
  EXPECT_NE(page.find("kvcast_reuse_cause_info{worker=\"engine\",cause=\"never_stored\","
                      "group=\"1\",kind=\"mamba\"} 1\n"),
            std::string::npos);
  EXPECT_NE(page.find("kvcast_reuse_lost_prompts{worker=\"engine\",cause=\"never_stored\"} 12\n"),
            std::string::npos);
}

TEST_F(ReuseServiceTest, AHealthyWorkerShowsPredictedAndObservedTokens) {
  Follow(engine::Window(32));
  for (const EventBatch& batch : StoresOf(engine::Window(32), 12)) {
    ASSERT_TRUE(publisher->Publish(batch).ok());
  }
  const Json reuse = ReuseUntil([](const Json& now) { return now.at("tested_prompts") == 12; });
  EXPECT_EQ(reuse.at("cause"), "none");
  EXPECT_EQ(reuse.at("group"), nullptr);
  EXPECT_GT(reuse.at("usable_share"), 0.9);
  Json prompt = Json::array();
  for (int token = 1; token <= 96; ++token) prompt.push_back(token);
  for (int token = 0; token < 20; ++token) prompt.push_back(7);
  const Json route = {{"tokens", prompt}, {"request_id", "one"}};
  ASSERT_EQ(Client().Post("/v1/route", route.dump(), "application/json")->status, 200);
  const Json admitted = {{"request_id", "one"}, {"event", "admitted"}, {"reused_tokens", 80}};
  for (int again = 0; again < 2; ++again) {
    ASSERT_EQ(Client().Post("/v1/feedback", admitted.dump(), "application/json")->status, 200);
  }
  EXPECT_EQ(Reuse().at("observed"), Json::parse(R"([{"kind": "none", "cause": "none",
            "requests": 1, "predicted_tokens": 96, "reused_tokens": 80}])"))
      << "a request is counted once";
  EXPECT_NE(Client()
                .Get("/metrics")
                ->body.find("kvcast_worker_reused_tokens_total{worker=\"engine\",kind=\"none\","
                            "cause=\"none\"} 80\n"),
            std::string::npos);
}

// Reset keeps the totals of a worker, because they are counters. Remove deletes the totals.
TEST(ReuseWatch, TotalsAreKeptUntilTheWorkerIsRemoved) {
  ReuseWatch watch;
  constexpr WorkerId kWorker{1};
  for (int64_t i = 0; i < kMinTestedPrompts; ++i) {
    watch.Note(kWorker, "mamba", {.predicted_tokens = 64, .reused_tokens = 0});
  }
  EXPECT_EQ(DiagnosisName(watch.diagnosis(kWorker)), "not_enough_data")
      << "nothing is known about the groups";
  const ReuseByKindAndCause totals = watch.totals(kWorker);
  ASSERT_EQ(totals.size(), 1u);
  EXPECT_EQ(totals.begin()->first.first, "mamba");
  EXPECT_EQ(totals.begin()->second.predicted_tokens, 64u * kMinTestedPrompts);
  watch.Reset(kWorker);
  EXPECT_EQ(watch.totals(kWorker).size(), 1u) << "counters never fall";
  watch.Remove(kWorker);
  EXPECT_TRUE(watch.totals(kWorker).empty());
}

}  // namespace
}  // namespace kvcast::router
