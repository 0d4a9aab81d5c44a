// `kvcast router`: follows engines and answers queries over HTTP until it is told to stop.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdio>
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

// NAME=ENDPOINT[,REPLAY_ENDPOINT]
Result<RouterSource> ParseSource(const std::string& text, const RouterCommandOptions& options) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == text.size()) {
    return BadFlag("--source: expected NAME=ENDPOINT[,REPLAY_ENDPOINT], got '" + text + "'");
  }
  const auto algorithm = ParseHashAlgorithm(options.hash_algorithm);
  if (!algorithm) return BadFlag("--hash-algo: unknown algorithm '" + options.hash_algorithm + "'");
  RouterSource source;
  source.worker.name = text.substr(0, equals);
  source.endpoint = text.substr(equals + 1);
  if (const size_t comma = source.endpoint.find(','); comma != std::string::npos) {
    source.replay_endpoint = source.endpoint.substr(comma + 1);
    source.endpoint.resize(comma);
  }
  source.algorithm = *algorithm;
  if (!options.hash_seed.empty()) source.hash_seed = options.hash_seed;
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
