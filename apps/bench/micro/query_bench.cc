// Measures two parts of a request of 10,000 tokens: the reading of the request's body, and the
// decision over 8 workers that hold the prompt. Neither part includes HTTP.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "kvcast/stream/publisher.h"
#include "router/service/route/query.h"
#include "router/service/router_service.h"
#include "src/base/check.h"

namespace kvcast::router {
namespace {

using Json = nlohmann::json;

constexpr int64_t kTokens = 10000;
constexpr int64_t kBlock = 16;
constexpr int kWorkers = 8;

std::vector<TokenId> Tokens() {
  std::vector<TokenId> tokens(kTokens);
  uint64_t state = 1;
  for (TokenId& token : tokens) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    token = static_cast<TokenId>(state >> 33) % 150000;
  }
  return tokens;
}

Json Body() { return {{"model", "m"}, {"tokens", Tokens()}}; }

void ReadBody(benchmark::State& state, const std::string& body, QueryEncoding encoding) {
  for (auto _ : state) {
    const auto query = ParseQuery(body, QueryForm::kRoute, encoding);
    KV_CHECK(query.ok() && query->tokens.size() == kTokens);
    benchmark::DoNotOptimize(query);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(body.size()));
}

void BM_ReadJson(benchmark::State& state) { ReadBody(state, Body().dump(), QueryEncoding::kJson); }
BENCHMARK(BM_ReadJson)->Unit(benchmark::kMicrosecond);

void BM_ReadMessagePack(benchmark::State& state) {
  const std::vector<uint8_t> bytes = Json::to_msgpack(Body());
  ReadBody(state, {bytes.begin(), bytes.end()}, QueryEncoding::kMessagePack);
}
BENCHMARK(BM_ReadMessagePack)->Unit(benchmark::kMicrosecond);

EventBatch Stored(const std::vector<TokenId>& tokens) {
  BlockStored stored;
  stored.token_ids = tokens;
  stored.block_size = kBlock;
  stored.token_ids->resize(tokens.size() / kBlock * kBlock);
  for (size_t i = 0; i < tokens.size() / kBlock; ++i) stored.block_hashes.emplace_back(i + 1);
  stored.medium = kMediumGpu;
  stored.group_idx = 0;
  EventBatch batch;
  batch.events.emplace_back(std::move(stored));
  return batch;
}

void BM_Decide(benchmark::State& state) {
  std::vector<std::unique_ptr<Publisher>> publishers;
  RouterOptions options;
  for (int i = 0; i < kWorkers; ++i) {
    PublisherConfig config;
    config.endpoint = "tcp://127.0.0.1:0";
    config.replay_endpoint = "tcp://127.0.0.1:0";
    publishers.push_back(Publisher::Create(config).value());
    WorkerRegistration source;
    source.endpoint = publishers.back()->endpoint();
    source.replay_endpoint = publishers.back()->replay_endpoint();
    source.worker.name = "worker" + std::to_string(i);
    source.worker.groups = {{.block_size = kBlock}};
    options.sources.push_back(source);
  }
  const auto service = RouterService::Start(options).value();
  Query query;
  query.tokens = Tokens();
  query.prompt_tokens = kTokens;
  query.book = false;
  for (const auto& publisher : publishers) {
    KV_CHECK(publisher->Publish(Stored(query.tokens)).ok());
  }
  const auto held = [&] {
    const auto decision = service->Route(query);
    return decision.ok() && std::ranges::all_of(decision->candidates, [](const auto& candidate) {
             return candidate.answer.match.gpu_tokens == (kTokens - 1) / kBlock * kBlock;
           });
  };
  while (!held()) std::this_thread::yield();
  for (auto _ : state) benchmark::DoNotOptimize(service->Route(query));
}
BENCHMARK(BM_Decide)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kvcast::router

BENCHMARK_MAIN();
