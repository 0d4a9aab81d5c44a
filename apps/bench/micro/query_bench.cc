// Measures two parts of a request of 10,000 tokens: the reading of the request's body, and the
// decision. Neither part includes HTTP.
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

// Arguments: the number of workers, and the number of workers that hold the prompt. The other
// workers hold only the first block of the prompt.
void BM_Decide(benchmark::State& state) {
  const int64_t holders = state.range(1);
  std::vector<std::unique_ptr<Publisher>> publishers;
  RouterOptions options;
  for (int64_t i = 0; i < state.range(0); ++i) {
    PublisherConfig config;
    config.endpoint = "tcp://127.0.0.1:0";
    config.replay_endpoint = "tcp://127.0.0.1:0";
    config.shares_threads = true;
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
  const std::vector<TokenId> first(query.tokens.begin(), query.tokens.begin() + kBlock);
  for (size_t i = 0; i < publishers.size(); ++i) {
    const bool holds = static_cast<int64_t>(i) < holders;
    KV_CHECK(publishers[i]->Publish(Stored(holds ? query.tokens : first)).ok());
  }
  const auto all_applied = [&] {
    const auto decision = service->Route(query);
    return decision.ok() && std::ranges::all_of(decision->candidates, [&](const auto& candidate) {
             const QueryAnswer& answer = candidate.answer;
             const bool holds = answer.match.worker.value < holders;
             return answer.state == SourceState::kSynced &&
                    answer.match.gpu_tokens == (holds ? (kTokens - 1) / kBlock : 1) * kBlock;
           });
  };
  while (!all_applied()) std::this_thread::yield();
  for (auto _ : state) benchmark::DoNotOptimize(service->Route(query));
}
BENCHMARK(BM_Decide)
    ->Args({8, 8})
    ->Args({64, 8})
    ->Args({256, 8})
    ->Args({512, 8})
    ->Args({512, 512})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace kvcast::router

BENCHMARK_MAIN();
