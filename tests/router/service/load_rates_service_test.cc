// Two workers hold most of a prompt in host memory or storage. After reports of slow loads from the
// first worker, the router chooses the second worker.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "kvcast/stream/publisher.h"
#include "router/service/json/json_fields.h"
#include "router/service/router_service.h"
#include "tests/support/index_events.h"

namespace kvcast::router {
namespace {

using kvcast::testing::Batch;
using kvcast::testing::Full;
using kvcast::testing::Hashes;
using kvcast::testing::StoreIn;

// The prompt has 100 tokens. "first" and "second" hold 64 of these tokens in one tier. "cold" holds
// none of them. At 1 GB/s the load of a token takes as long as its computation. The configured rate
// of host memory is 10 GB/s.
struct LoadRatesServiceTest : ::testing::Test {
  void Start(const std::string& medium) {
    RouterOptions options;
    // A token takes 1 s to compute, and nothing else takes time. So costs are in tokens.
    options.routing.forecast.start = {{0, 1, 0, 0, 0}};
    for (const char* name : {"first", "second", "cold"}) {
      PublisherConfig config;
      config.endpoint = "tcp://127.0.0.1:0";
      config.replay_endpoint = "tcp://127.0.0.1:0";
      const auto& publisher = publishers.emplace_back(Publisher::Create(config).value());
      WorkerRegistration& source = options.sources.emplace_back();
      source.endpoint = publisher->endpoint();
      source.replay_endpoint = publisher->replay_endpoint();
      source.worker.name = name;
      source.worker.groups = {Full()};
      source.load_rates = {.kv_bytes_per_token = 100'000,
                           .prefill_tokens_per_s = 10'000,
                           .cpu_bytes_per_s = 10'000'000'000};
    }
    auto started = RouterService::Start(options);
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    service = std::move(started).value();
    for (size_t i = 0; i < publishers.size(); ++i) {
      const auto hashes = i < 2 ? Hashes(1, 4) : Hashes(500, 4);
      ASSERT_TRUE(publishers[i]->Publish(Batch(StoreIn(medium, hashes))).ok());
    }
    while (!AllSynced()) std::this_thread::yield();
  }
  httplib::Client Client() const {
    httplib::Client client("127.0.0.1", service->http_port());
    client.set_read_timeout(60);
    return client;
  }
  bool AllSynced() const {
    const auto state = Json::parse(Client().Get("/v1/state")->body);
    for (const Json& worker : state.at("workers")) {
      if (worker.at("state") != "synced" || worker.at("next_seq") != 1) return false;
    }
    return true;
  }
  std::pair<int, Json> Post(const std::string& path, const std::string& body) const {
    const auto reply = Client().Post(path, body, "application/json");
    return reply ? std::pair(reply->status, Json::parse(reply->body)) : std::pair(0, Json());
  }
  Json Route(const Json& workers) const {
    const Json query = {{"hashes", {1, 2, 3, 4}},
                        {"hash_block_size", 16},
                        {"prompt_tokens", 100},
                        {"workers", workers},
                        {"book", false}};
    return Post("/v1/route", query.dump()).second;
  }
  std::string Chosen() const { return Route({"first", "second", "cold"}).at("worker"); }
  // Sends LoadRate::kEnough reports. Each report has 1 GB that was loaded in `seconds` seconds.
  void Report(const std::string& worker, const std::string& tier, double seconds) const {
    for (size_t i = 0; i < LoadRate::kEnough; ++i) {
      const Json load = {{"tier", tier}, {"bytes", 1e9}, {"seconds", seconds}};
      const auto [status, reply] =
          Post("/v1/load_rates", Json({{"worker", worker}, {"loads", {load}}}).dump());
      EXPECT_EQ(status, 200) << reply;
      EXPECT_EQ(reply, Json({{"status", "ok"}, {"taken", 1}, {"ignored", 0}}));
    }
  }
  Json Tier(size_t worker, const std::string& tier) const {
    const auto state = Json::parse(Client().Get("/v1/state")->body);
    return state.at("workers").at(worker).at("load_rates").at("tiers").at(tier);
  }

  std::vector<std::unique_ptr<Publisher>> publishers;
  std::unique_ptr<RouterService> service;
};

const Json& CandidateOf(const Json& decision, const std::string& name) {
  for (const Json& candidate : decision.at("candidates")) {
    if (candidate.at("name") == name) return candidate;
  }
  throw std::out_of_range(name);
}

// A cost contains differences of times, which are seconds of the machine's clock.
constexpr double kClockError = 1e-6;

TEST_F(LoadRatesServiceTest, AWorkerWithSlowLoadsIsNotChosen) {
  Start("CPU");
  const Json before = Route({"first", "second", "cold"});
  EXPECT_EQ(before.at("worker"), "first") << "the configured rates are equal";
  EXPECT_NEAR(CandidateOf(before, "first").at("cost"), 36 + 36 + 64 * 0.1, kClockError);
  Report("first", "CPU", 0.5);
  const Json after = Route({"first", "second", "cold"});
  EXPECT_EQ(after.at("worker"), "second");
  EXPECT_NEAR(CandidateOf(after, "first").at("cost"), 36 + 36 + 64 * 0.5, kClockError);
  EXPECT_DOUBLE_EQ(CandidateOf(after, "first").at("load_token"), 0.5);
  EXPECT_DOUBLE_EQ(CandidateOf(after, "second").at("load_token"), 0.1);
  for (const char* member : {"reusable_tokens", "reusable_with_cpu_tokens", "exact",
                             "reusable_with_storage_tokens", "recompute_tokens"}) {
    EXPECT_EQ(CandidateOf(before, "first").at(member), CandidateOf(after, "first").at(member))
        << member;
  }
  EXPECT_EQ(CandidateOf(after, "first").at("reusable_with_cpu_tokens"), 64);
  // At 2 GB/s, loading is faster than computing. At 0.4 GB/s, a load takes 2.5 times as long as the
  // computation. The router counts each computed token twice.
  EXPECT_EQ(Route({"first", "cold"}).at("worker"), "first");
  for (int i = 0; i < 3; ++i) Report("first", "CPU", 2.5);
  EXPECT_EQ(Route({"first", "cold"}).at("worker"), "cold");
  Report("second", "CPU", 4);
  EXPECT_EQ(Chosen(), "cold");
}

TEST_F(LoadRatesServiceTest, StorageHasARateOfItsOwn) {
  Start("STORAGE");
  const Json before = Route({"first", "second"});
  EXPECT_EQ(before.at("worker"), "first");
  EXPECT_NEAR(CandidateOf(before, "first").at("cost"), 36 + 36 + 64 * 0.75, kClockError)
      << "the default weight of a token in storage";
  Report("first", "CPU", 0.01);
  EXPECT_NEAR(CandidateOf(Route({"first"}), "first").at("cost"), 36 + 36 + 64 * 0.75, kClockError);
  Report("first", "STORAGE", 0.9);
  const Json after = Route({"first", "second"});
  EXPECT_EQ(after.at("worker"), "second");
  EXPECT_NEAR(CandidateOf(after, "first").at("cost"), 36 + 36 + 64 * 0.91, kClockError);
  Report("second", "STORAGE", 0.2);
  EXPECT_NEAR(CandidateOf(Route({"second"}), "second").at("cost"), 36 + 36 + 64 * 0.3, kClockError);
}

TEST_F(LoadRatesServiceTest, TotalsGiveTheRateOfEachReport) {
  Start("CPU");
  const auto totals = [this](double bytes, double seconds) {
    const Json load = {{"tier", "CPU"}, {"bytes_total", bytes}, {"seconds_total", seconds}};
    return Post("/v1/load_rates", Json({{"worker", "first"}, {"loads", {load}}}).dump()).second;
  };
  for (int i = 1; i <= 3; ++i) EXPECT_EQ(totals(i * 1e9, i * 0.5).at("taken"), 1);
  EXPECT_EQ(totals(3e9, 1.5).at("ignored"), 1) << "sent twice";
  EXPECT_EQ(Tier(0, "CPU").at("measured_bytes_per_s"), 2e9);
  EXPECT_EQ(Chosen(), "second");
}

TEST_F(LoadRatesServiceTest, BadReportsAreRefusedAndChangeNothing) {
  Start("CPU");
  Report("second", "CPU", 0.1);
  const Json first = Tier(0, "CPU");
  const std::array<std::pair<const char*, int>, 7> bodies = {{
      {"{", 400},
      {R"({"worker": "nobody", "loads": [{"tier": "CPU", "bytes": 1e9, "seconds": 9}]})", 404},
      {R"({"worker": "first", "loads": [{"tier": "GPU", "bytes": 1e9, "seconds": 9}]})", 400},
      {R"({"worker": "first", "loads": [{"tier": "CPU", "bytes": 1e9, "seconds": -1}]})", 400},
      {R"({"worker": "first", "loads": [{"tier": "CPU", "bytes": 1e999, "seconds": 1}]})", 400},
      {R"({"worker": "first", "loads": [{"tier": "CPU", "bytes": [[[1]]], "seconds": 1}]})", 400},
      // One good load and one bad load.
      {R"({"worker": "first", "loads": [{"tier": "CPU", "bytes": 1e9, "seconds": 9},
           {"tier": "CPU", "bytes": 1e9}]})",
       400},
  }};
  for (const auto& [body, code] : bodies) {
    const auto [status, reply] = Post("/v1/load_rates", body);
    EXPECT_EQ(status, code) << body;
    EXPECT_TRUE(reply.contains("error")) << reply;
  }
  EXPECT_EQ(Tier(0, "CPU"), first);
  EXPECT_EQ(Chosen(), "first");
}

TEST_F(LoadRatesServiceTest, StateAndMetricsShowTheRates) {
  Start("CPU");
  const auto report = [this](double bytes, double seconds) {
    const Json load = {{"tier", "CPU"}, {"bytes", bytes}, {"seconds", seconds}};
    return Post("/v1/load_rates", Json({{"worker", "first"}, {"loads", {load}}}).dump()).second;
  };
  for (int i = 0; i < 3; ++i) report(1e9, 0.25);
  EXPECT_EQ(report(1000, 0.25).at("ignored"), 1);
  report(1e12, 0.0001);
  const Json cpu = Tier(0, "CPU");
  EXPECT_EQ(cpu.at("configured_bytes_per_s"), 1e10);
  EXPECT_EQ(cpu.at("measured_bytes_per_s"), 4e9);
  EXPECT_EQ(cpu.at("cost"), 0.25);
  EXPECT_EQ(cpu.at("reports"), Json({{"taken", 3}, {"idle", 0}, {"small", 1}, {"implausible", 1}}));
  EXPECT_EQ(Tier(1, "CPU").at("measured_bytes_per_s"), nullptr);
  const std::string page = "\n" + Client().Get("/metrics")->body;
  for (
      const char* line :
      {R"(kvcast_load_rate_bytes_per_second{worker="first",tier="CPU",source="configured"} 10000000000)",
       R"(kvcast_load_rate_bytes_per_second{worker="first",tier="CPU",source="measured"} 4000000000)",
       R"(kvcast_load_token_cost{worker="first",tier="CPU"} 0.25)",
       R"(kvcast_load_reports_total{worker="first",tier="CPU",result="taken"} 3)",
       R"(kvcast_load_reports_total{worker="first",tier="CPU",result="small"} 1)",
       R"(kvcast_load_reports_total{worker="first",tier="CPU",result="implausible"} 1)",
       R"(kvcast_load_reports_total{worker="cold",tier="STORAGE",result="taken"} 0)"}) {
    EXPECT_NE(page.find("\n" + std::string(line) + "\n"), std::string::npos) << line;
  }
  EXPECT_EQ(page.find(R"(kvcast_load_token_cost{worker="first",tier="STORAGE"})"),
            std::string::npos);
}

}  // namespace
}  // namespace kvcast::router
