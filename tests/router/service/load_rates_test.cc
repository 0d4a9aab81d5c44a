// The cost of a worker's loads follows the reported rate. Without enough recent reports, the cost
// follows the configured rate.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/load_rates.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "router/service/api/source_flag.h"
#include "router/service/api/source_json.h"
#include "router/service/json/json_fields.h"
#include "router/service/route/decision_json.h"
#include "router/service/route/request_router.h"

namespace kvcast::router {
namespace {

// A token has 100 kB, and the worker computes 10,000 tokens per second. At 1 GB/s a load takes as
// long as the computation.
constexpr int64_t kTokenBytes = 100'000;
constexpr int64_t kPrefill = 10'000;

void Report(LoadRates& rates, Tier tier, double bytes_per_s, int64_t now_ms = 0) {
  for (size_t i = 0; i < LoadRate::kEnough; ++i) {
    EXPECT_EQ(rates.Note({tier, 1e9, 1e9 / bytes_per_s, false}, now_ms), LoadReport::kTaken);
  }
}

void ExpectCost(const std::optional<double>& cost, const std::optional<double>& expected,
                const char* why) {
  ASSERT_EQ(cost.has_value(), expected.has_value()) << why;
  EXPECT_NEAR(cost.value_or(0), expected.value_or(0), 1e-9) << why;
}

TEST(LoadRates, CostFollowsTheMeasuredRateOrElseTheConfiguredRate) {
  constexpr double kNo = 0;  // not reported
  const struct {
    LoadRateConfig config;
    double cpu, storage;  // reported rates, bytes per second
    std::optional<double> cpu_cost, storage_cost;
    const char* why;
  } rows[] = {
      {{}, kNo, kNo, {}, {}, "nothing is configured or reported"},
      {{}, 1e9, 1e9, {}, {}, "rates without the size of a token and the prefill rate"},
      {{.kv_bytes_per_token = kTokenBytes}, 1e9, kNo, {}, {}, "no prefill rate"},
      {{.prefill_tokens_per_s = kPrefill}, 1e9, kNo, {}, {}, "no size of a token"},
      {{kTokenBytes, kPrefill}, kNo, kNo, {}, {}, "no rate"},
      {{kTokenBytes, kPrefill, 10'000'000'000}, kNo, kNo, 0.1, {}, "configured"},
      {{kTokenBytes, kPrefill, 10'000'000'000},
       5e8,
       kNo,
       2.0,
       {},
       "the measured rate replaces the configured rate"},
      {{kTokenBytes, kPrefill}, 5e8, kNo, 2.0, {}, "measured"},
      {{kTokenBytes, kPrefill, 0, 1'000'000'000}, kNo, kNo, {}, 1.0, "storage alone"},
      {{kTokenBytes, kPrefill, 10'000'000'000, 1'000'000'000}, kNo, kNo, 0.1, 1.1, "both set"},
      {{kTokenBytes, kPrefill, 10'000'000'000}, kNo, 5e8, 0.1, 2.1, "storage measured"},
      {{kTokenBytes, kPrefill, 0, 1'000'000'000}, 1e10, 5e8, 0.1, 2.1, "both measured"},
  };
  for (const auto& [config, cpu, storage, cpu_cost, storage_cost, why] : rows) {
    LoadRates rates(config);
    if (cpu > 0) Report(rates, Tier::kCpu, cpu);
    if (storage > 0) Report(rates, Tier::kStorage, storage);
    ExpectCost(rates.costs(0).cpu, cpu_cost, why);
    ExpectCost(rates.costs(0).storage, storage_cost, why);
  }
}

TEST(LoadRates, TheConfiguredRateCountsAgainAfterTheLifetimeOfReports) {
  LoadRates rates({kTokenBytes, kPrefill, 10'000'000'000});
  for (size_t i = 1; i < LoadRate::kEnough; ++i) rates.Note({Tier::kCpu, 1e9, 2, false}, 0);
  EXPECT_NEAR(*rates.costs(0).cpu, 0.1, 1e-9) << "too few reports";
  rates.Note({Tier::kCpu, 1e9, 2, false}, 0);
  EXPECT_NEAR(*rates.costs(0).cpu, 2, 1e-9);
  EXPECT_NEAR(*rates.costs(LoadRate::kLifetimeMs - 1).cpu, 2, 1e-9);
  EXPECT_NEAR(*rates.costs(LoadRate::kLifetimeMs).cpu, 0.1, 1e-9);
  const LoadRatesView view = rates.view(LoadRate::kLifetimeMs);
  EXPECT_FALSE(view.cpu.measured);
  EXPECT_EQ(view.cpu.samples, LoadRate::kEnough);
  EXPECT_EQ(view.cpu.age_seconds, LoadRate::kLifetimeMs / 1000.0);
}

TEST(LoadRates, UnknownValuesAreShownAsNull) {
  LoadRates rates({kTokenBytes, kPrefill, 0, 1'000'000'000});
  Report(rates, Tier::kCpu, 5e8, 1000);
  rates.Note({Tier::kCpu, 0, 0, false}, 1000);
  const Json expected = {
      {"kv_bytes_per_token", kTokenBytes},
      {"prefill_tokens_per_s", kPrefill},
      {"tiers",
       {{"CPU",
         {{"configured_bytes_per_s", nullptr},
          {"measured_bytes_per_s", 5e8},
          {"cost", 2.0},
          {"samples", 3},
          {"age_seconds", 0.5},
          {"reports", {{"taken", 3}, {"idle", 1}, {"small", 0}, {"implausible", 0}}}}},
        {"STORAGE",
         {{"configured_bytes_per_s", 1e9},
          {"measured_bytes_per_s", nullptr},
          {"cost", 3.0},
          {"samples", 0},
          {"age_seconds", nullptr},
          {"reports", {{"taken", 0}, {"idle", 0}, {"small", 0}, {"implausible", 0}}}}}}}};
  EXPECT_EQ(LoadRatesToJson(rates.view(1500)), expected);
  const Json unconfigured = LoadRatesToJson(LoadRates({}).view(0));
  EXPECT_EQ(unconfigured.at("kv_bytes_per_token"), nullptr);
  EXPECT_EQ(unconfigured.at("prefill_tokens_per_s"), nullptr);
}

TEST(LoadRateReports, AreRead) {
  const auto report = ParseLoadRateReport(
      R"({"worker": "w", "loads": [{"tier": "CPU", "bytes": 3.49403e+08, "seconds": 0.0062},
          {"tier": "STORAGE", "bytes_total": 7, "seconds_total": 1000000000}]})");
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  EXPECT_EQ(report->worker, "w");
  ASSERT_EQ(report->loads.size(), 2u);
  EXPECT_EQ(report->loads[0].tier, Tier::kCpu);
  EXPECT_EQ(report->loads[0].bytes, 349403000);
  EXPECT_EQ(report->loads[0].seconds, 0.0062);
  EXPECT_FALSE(report->loads[0].totals);
  EXPECT_EQ(report->loads[1].tier, Tier::kStorage);
  EXPECT_EQ(report->loads[1].bytes, 7);
  EXPECT_EQ(report->loads[1].seconds, 1e9);
  EXPECT_TRUE(report->loads[1].totals);
}

TEST(LoadRateReports, ErrorsNameTheMember) {
  const std::string load = R"({"tier": "CPU", "bytes": 1, "seconds": 1})";
  std::string many = load;
  for (size_t i = 0; i < kMaxLoadsAReport; ++i) many += "," + load;
  const std::pair<std::string, std::string> bodies[] = {
      {"", "body: not JSON"},
      {"[]", "body: must be an object"},
      {"{}", "worker: required"},
      {R"({"worker": "w"})", "loads: required"},
      {R"({"worker": 1, "loads": [)" + load + "]}", "worker: must be a string"},
      {R"({"loads": [)" + load + "]}", "worker: required"},
      {R"({"worker": "w", "load": []})", "unknown member: load"},
  };
  for (const auto& [body, message] : bodies) {
    EXPECT_EQ(ParseLoadRateReport(body).status().message(), message) << body;
  }
  const std::pair<std::string, std::string> lists[] = {
      {"{}", "loads: must be an array of 1 to 64 elements"},
      {"[]", "loads: must be an array of 1 to 64 elements"},
      {"[" + many + "]", "loads: must be an array of 1 to 64 elements"},
      {"[1]", "loads[0]: must be an object"},
      {"[{}]", "loads[0].tier: required"},
      {R"([{"tier": "CPU", "seconds": 1}])", "loads[0].bytes: required"},
      {R"([{"tier": "CPU", "bytes": 1}])", "loads[0].seconds: required"},
      {R"([{"tier": "CPU", "bytes_total": 1, "seconds": 1}])", "loads[0].seconds_total: required"},
      {R"([{"bytes": 1, "seconds": 1}])", "loads[0].tier: required"},
      {R"([{"tier": "GPU", "bytes": 1, "seconds": 1}])", "loads[0].tier: must be CPU or STORAGE"},
      {R"([{"tier": 1, "bytes": 1, "seconds": 1}])", "loads[0].tier: must be CPU or STORAGE"},
      {R"([{"tier": "CPU", "bytes": -1, "seconds": 1}])",
       "loads[0].bytes: must be a number from 0 to 1e+18"},
      {R"([{"tier": "CPU", "bytes": "1", "seconds": 1}])",
       "loads[0].bytes: must be a number from 0 to 1e+18"},
      {R"([{"tier": "CPU", "bytes": 1, "seconds": 1e10}])",
       "loads[0].seconds: must be a number from 0 to 1e+09"},
      {R"([{"tier": "CPU", "bytes": 1e19, "seconds": 1}])",
       "loads[0].bytes: must be a number from 0 to 1e+18"},
      {R"([{"tier": "CPU", "bytes": null, "seconds": 1}])",
       "loads[0].bytes: must be a number from 0 to 1e+18"},
      {R"([{"tier": "CPU", "bytes": 1, "seconds": 1, "gbps": 1}])",
       "unknown member: loads[0].gbps"},
      {R"([{"tier": "CPU", "bytes": 1, "seconds": 1, "bytes_total": 1, "seconds_total": 1}])",
       "unknown member: loads[0].bytes"},
      {"[" + load + R"(, {"tier": "CPU"}])", "loads[1].bytes: required"},
  };
  for (const auto& [list, message] : lists) {
    const std::string body = R"({"worker": "w", "loads": )" + list + "}";
    EXPECT_EQ(ParseLoadRateReport(body).status().message(), message) << list;
  }
}

TEST(LoadRateConfig, IsPartOfASource) {
  const Json json = {{"name", "w"},
                     {"endpoint", "e"},
                     {"routing_group", "default"},
                     {"data_parallel_rank", 0},
                     {"format", "engine"},
                     {"kv_bytes_per_token", 131072},
                     {"prefill_tokens_per_s", 15928},
                     {"cpu_load_bytes_per_s", 45'000'000'000},
                     {"storage_load_bytes_per_s", 330'000'000}};
  const auto source = SourceFromJson(json);
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(source->load_rates.kv_bytes_per_token, 131072);
  EXPECT_EQ(source->load_rates.prefill_tokens_per_s, 15928);
  EXPECT_EQ(source->load_rates.cpu_bytes_per_s, 45'000'000'000);
  EXPECT_EQ(source->load_rates.storage_bytes_per_s, 330'000'000);
  EXPECT_EQ(SourceToJson(*source), json);
  const auto flag = SourceFromFlag(
      "w=e,kv_bytes_per_token=131072,prefill_tokens_per_s=15928,"
      "cpu_load_bytes_per_s=45000000000,storage_load_bytes_per_s=330000000");
  ASSERT_TRUE(flag.ok()) << flag.status().ToString();
  EXPECT_EQ(SourceToJson(*flag), json);
  const std::pair<const char*, const char*> wrong[] = {
      {"kv_bytes_per_token=0", "kv_bytes_per_token: must be a positive integer"},
      {"prefill_tokens_per_s=fast", "prefill_tokens_per_s: must be a positive integer"},
      {"prefill_tokens_per_s=1000000001", "prefill_tokens_per_s: must be at most 1000000000"},
      {"cpu_load_bytes_per_s=99999",
       "cpu_load_bytes_per_s: must be from 100000 to 10000000000000 bytes per second"},
      {"storage_load_bytes_per_s=10000000000001",
       "storage_load_bytes_per_s: must be from 100000 to 10000000000000 bytes per second"},
  };
  for (const auto& [member, message] : wrong) {
    EXPECT_EQ(SourceFromFlag(std::string("w=e,") + member).status().message(), message);
  }
}

// A token takes 1 s to compute. The fleet's work counts each computed token once more. With weight
// 0.5, half of a source's tokens count. The cost of a loaded token is unchanged.
TEST(LoadRates, DecisionsShowTheCostOfALoadedToken) {
  RoutingConfig config;
  config.forecast.start = {{0, 1, 0, 0, 0}};
  RequestRouter request_router(config, [] { return 0.0; });
  QueryAnswer answer;
  answer.name = "w";
  answer.match.worker = WorkerId(1);
  answer.match.gpu_tokens = 100;
  answer.match.with_cpu_tokens = 300;
  answer.match.with_storage_tokens = 700;
  answer.weight = 1;
  Query query;
  query.prompt_tokens = 1000;
  query.book = false;
  const auto decide = [&] { return request_router.Decide(query, {answer}, 0).value(); };
  EXPECT_DOUBLE_EQ(decide().candidates[0].cost, 2 * 300 + 200 * 0.1 + 400 * 0.75);
  answer.load_costs = {0.5, 2.0};
  const RouteDecision decision = decide();
  EXPECT_DOUBLE_EQ(decision.candidates[0].cost, 2 * 300 + 200 * 0.5 + 400 * 2.0);
  EXPECT_EQ(decision.reason,
            "100 of 1000 tokens reusable, 200 to load, 400 to load from storage; cost 1500.000 s, "
            "the only worker to choose from");
  const Json candidate = Json::parse(RenderDecision(decision)).at("candidates").at(0);
  EXPECT_EQ(candidate.at("load_token"), 0.5);
  EXPECT_EQ(candidate.at("load_storage_token"), 2.0);
  answer.weight = 0.5;
  EXPECT_DOUBLE_EQ(decide().candidates[0].cost, 2 * 650 + 100 * 0.5 + 200 * 2.0);
}

}  // namespace
}  // namespace kvcast::router
