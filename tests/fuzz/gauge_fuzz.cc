// Fuzz target: the messages with the load of a router. A decoded message keeps the bounds of the
// format, and its encoding gives the same message again. The sum over the routers is the sum of the
// latest messages, one of each router.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "router/service/load/load_gauge.h"
#include "router/service/load/peer_loads.h"
#include "src/base/check.h"
#include "tests/fuzz/fuzz_input.h"

namespace kvcast::router {
namespace {

constexpr char kOwnName[] = "own";
constexpr int64_t kNowUs = 1;

void CheckBounds(const LoadGauge& gauge) {
  KV_CHECK(!gauge.origin.empty() && gauge.origin.size() <= kMaxOriginBytes);
  KV_CHECK(gauge.period_ms >= kMinLoadPeriodMs && gauge.period_ms <= kMaxLoadPeriodMs);
  KV_CHECK(gauge.load.arrivals_per_s >= 0 && gauge.load.work_s_per_s >= 0);
  const std::string* before = nullptr;
  for (const WorkerGauge& worker : gauge.load.workers) {
    KV_CHECK(before == nullptr || *before < worker.worker);
    before = &worker.worker;
    KV_CHECK(!worker.load.empty());
    for (const int64_t value :
         {worker.load.prompts, worker.load.prompt_tokens, worker.load.prompt_pairs,
          worker.load.decodes, worker.load.decode_context}) {
      KV_CHECK(value >= 0 && value <= int64_t{1} << 52);
    }
  }
}

void CheckEncoding(const LoadGauge& gauge) {
  const auto bytes = EncodeGauge(gauge);
  KV_CHECK(bytes.ok());
  LoadGauge again;
  GaugeReject reject{};
  KV_CHECK(DecodeGauge(*bytes, again, reject));
  KV_CHECK(again == gauge);
}

bool IsNewer(const LoadGauge& gauge, const LoadGauge& than) {
  return std::pair(gauge.epoch, gauge.seq) > std::pair(than.epoch, than.seq);
}

void CheckSum(const std::map<std::string, LoadGauge>& latest, const PeerLoads& loads) {
  std::map<std::string, InFlight> expected;
  for (const auto& [origin, gauge] : latest) {
    for (const WorkerGauge& worker : gauge.load.workers) expected[worker.worker] += worker.load;
  }
  const OriginLoad sum = loads.Sum();
  KV_CHECK(sum.workers.size() == expected.size());
  KV_CHECK(std::ranges::equal(sum.workers, expected, [](const WorkerGauge& a, const auto& b) {
    return a.worker == b.first && a.load == b.second;
  }));
  KV_CHECK(loads.view().routers == latest.size());
}

void TakeAll(fuzz::Bytes input) {
  PeerLoads loads(kOwnName, 1);
  std::map<std::string, LoadGauge> latest;
  fuzz::Parts parts(input);
  while (const auto part = parts.Next()) {
    LoadGauge gauge;
    GaugeReject reject{};
    if (!DecodeGauge(*part, gauge, reject)) continue;
    CheckBounds(gauge);
    CheckEncoding(gauge);
    const auto before = latest.find(gauge.origin);
    const bool is_accepted =
        gauge.origin != kOwnName && (before == latest.end() ? latest.size() < PeerLoads::kMaxOrigins
                                                            : IsNewer(gauge, before->second));
    const auto refused = loads.Take(gauge, kNowUs);
    KV_CHECK(gauge.origin == kOwnName || is_accepted == !refused.has_value());
    if (is_accepted) latest[gauge.origin] = std::move(gauge);
  }
  CheckSum(latest, loads);
}

}  // namespace
}  // namespace kvcast::router

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcast::router::TakeAll({data, size});
  return 0;
}
