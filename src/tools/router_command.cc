// `kvcast router`: follows engines and answers queries over HTTP until it is told to stop.
// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <thread>

#include "router/service/router_service.h"
#include "src/tools/commands.h"
#include "src/tools/number.h"
#include "src/tools/stop.h"

namespace kvcast::tools {
namespace {

using router::RouterOptions;
using router::RouterService;
using router::RouterSource;

Status BadFlag(const std::string& text) { return {StatusCode::kInvalidArgument, text}; }

std::optional<std::vector<uint8_t>> ParseHexBytes(const std::string& hex) {
  if (hex.empty() || hex.size() % 2 != 0) return std::nullopt;
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    uint8_t byte = 0;
    const char* const end = hex.data() + i + 2;
    const auto [stop, error] = std::from_chars(hex.data() + i, end, byte, 16);
    if (error != std::errc() || stop != end) return std::nullopt;
    bytes.push_back(byte);
  }
  return bytes;
}

// NAME=ENDPOINT[,REPLAY_ENDPOINT]
Result<RouterSource> ParseSource(const std::string& text, const RouterCommandOptions& options) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size()) {
    return BadFlag("--source: expected NAME=ENDPOINT[,REPLAY_ENDPOINT], got '" + text + "'");
  }
  const auto algorithm = ParseHashAlgorithm(options.hash_algorithm);
  if (!algorithm && !options.hash_algorithm.empty()) {
    return BadFlag("--hash-algo: unknown algorithm '" + options.hash_algorithm + "'");
  }
  RouterSource source;
  source.worker.name = text.substr(0, equals);
  source.endpoint = text.substr(equals + 1);
  if (const size_t comma = source.endpoint.find(','); comma != std::string::npos) {
    source.replay_endpoint = source.endpoint.substr(comma + 1);
    source.endpoint.resize(comma);
  }
  source.algorithm = algorithm;
  if (!options.hash_seed.empty()) source.hash_seed = options.hash_seed;
  source.candidate_seeds = options.candidate_seeds;
  for (const std::string& hex : options.candidate_none_hashes) {
    const auto bytes = ParseHexBytes(hex);
    if (!bytes) return BadFlag("--candidate-none-hash: not hex digits: '" + hex + "'");
    source.candidate_none_hashes.push_back(*bytes);
  }
  return source;
}

Status ParseAddress(const std::string& text, router::HttpOptions& http) {
  const size_t colon = text.rfind(':');
  const auto port = colon == std::string::npos ? std::nullopt : ParseNumber(text.substr(colon + 1));
  if (!port || *port > 65535 || colon == 0) {
    return BadFlag("--http: expected ADDR:PORT, got '" + text + "'");
  }
  http.address = text.substr(0, colon);
  http.port = static_cast<int>(*port);
  return {};
}

Result<RouterOptions> MakeOptions(const RouterCommandOptions& options) {
  RouterOptions router;
  if (const Status parsed = ParseAddress(options.http, router.http); !parsed.ok()) return parsed;
  for (const std::string& text : options.sources) {
    auto source = ParseSource(text, options);
    if (!source.ok()) return source.status();
    router.sources.push_back(std::move(source).value());
  }
  return router;
}

}  // namespace

int RunRouter(const RouterCommandOptions& options) {
  auto router = MakeOptions(options);
  if (!router.ok()) return Fail(router.status());
  InstallStopSignals();
  auto service = RouterService::Start(*router);
  if (!service.ok()) return Fail(service.status());
  std::fprintf(stderr, "kvcast router: %zu sources, http://%s:%d\n", router->sources.size(),
               router->http.address.c_str(), (*service)->http_port());
  while (StopSignal() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  (*service)->Stop();
  return 0;
}

}  // namespace kvcast::tools
