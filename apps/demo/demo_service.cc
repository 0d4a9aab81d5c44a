// SPDX-License-Identifier: Apache-2.0
#include "apps/demo/demo_service.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "apps/engine/engine_setup.h"
#include "apps/engine/load_rate.h"
#include "router/service/config_json.h"

namespace kvcast::tools {
namespace {

Result<router::LoadRateConfig> LoadRatesOf(const CacheOptions& options) {
  router::LoadRateConfig rates;
  if (options.load_rate <= 0) return rates;
  const auto bytes_per_token = LoadedBytesPerToken(options.model);
  if (!bytes_per_token.ok()) return bytes_per_token.status();
  rates.kv_bytes_per_token = std::llround(*bytes_per_token);
  rates.prefill_tokens_per_s = std::llround(options.prefill_rate);
  rates.cpu_bytes_per_s = std::llround(options.load_rate * *bytes_per_token);
  return rates;
}

// Returns the number of batches, events and blocks that the worker's decoder could not use, plus
// the number of gaps in TensorRT-LLM's event ids.
uint64_t UnreadEvents(const router::SourceCounters& counters) {
  uint64_t unread = counters.undecodable_batches + counters.decode.rejected_total();
  if (counters.mooncake) unread += counters.mooncake->opaque + counters.mooncake->others;
  if (counters.trtllm) unread += counters.trtllm->gaps + counters.trtllm->partial_blocks;
  return unread;
}

}  // namespace

Result<router::RouterOptions> MakeServiceOptions(const DemoOptions& options,
                                                 const CacheConfig& cache,
                                                 const std::vector<EngineEndpoints>& engines,
                                                 const std::vector<PeerDialect>& dialects,
                                                 double speed) {
  router::RouterOptions service;
  if (!options.serve.empty()) {
    const Status address = router::ParseHttpAddress(options.serve, service.http);
    if (!address.ok()) return address;
  }
  const auto rates = LoadRatesOf(options.cache);
  if (!rates.ok()) return rates.status();
  for (double& seconds : service.routing.forecast.start.seconds) seconds /= speed;
  service.routing.forecast.late_s /= speed;
  // The engines run the trace `speed` times faster than it was recorded, so the lifetime of a
  // speculative prefix shrinks by the same factor.
  int64_t& expected_ms = service.routing.speculative.lifetime_ms;
  expected_ms = std::max<int64_t>(std::llround(static_cast<double>(expected_ms) / speed), 1);
  for (size_t i = 0; i < engines.size(); ++i) {
    const PeerDialect& dialect = dialects[i % dialects.size()];
    router::WorkerRegistration source;
    source.worker = MakeWorkerConfig(options.cache, cache, engines[i].name);
    source.endpoint = engines[i].endpoint;
    source.replay_endpoint = engines[i].replay_endpoint;
    source.model = options.cache.model;
    source.load_rates = *rates;
    RegisterPeer(dialect, cache, source);
    if (dialect.of_engine()) {
      const std::string& seed = options.cache.hash_seed;
      source.algorithm = ParseHashAlgorithm(options.cache.hash_algorithm);
      source.hash_seed = seed.empty() ? std::string(kDefaultHashSeed) : seed;
    }
    service.sources.push_back(std::move(source));
  }
  return service;
}

Status CheckFollowed(const router::WorkerReport& worker) {
  if (worker.state != SourceState::kSynced) {
    return {StatusCode::kUnavailable,
            worker.name + ": its stream is " + std::string(SourceStateName(worker.state))};
  }
  if (UnreadEvents(worker.counters) == 0) return {};
  return {StatusCode::kInternal, worker.name + ": the service could not read all of its events"};
}

}  // namespace kvcast::tools
