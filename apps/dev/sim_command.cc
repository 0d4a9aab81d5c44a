// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "apps/dev/dev_commands.h"
#include "src/stream_sim/seeds.h"
#include "src/stream_sim/shrink.h"

namespace kvcast::tools {
namespace {

struct Range {
  uint64_t first = 0;
  uint64_t last = 0;
};

// Accepts one number, or "A..B". A and B are included.
std::optional<Range> ParseRange(std::string_view text) {
  const size_t dots = text.find("..");
  const std::string_view first = text.substr(0, dots);
  const std::string_view last = dots == std::string_view::npos ? first : text.substr(dots + 2);
  Range range;
  const auto parse = [](std::string_view digits, uint64_t& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() && !digits.empty();
  };
  if (!parse(first, range.first) || !parse(last, range.last)) return std::nullopt;
  if (range.last < range.first || range.last == UINT64_MAX) return std::nullopt;
  return range;
}

void PrintFailure(uint64_t seed, const sim::Record& record) {
  std::printf("seed %llu FAILED\n", static_cast<unsigned long long>(seed));
  for (const sim::Violation& violation : record.violations) {
    std::printf("  %s: %s\n", violation.guarantee.c_str(), violation.what.c_str());
  }
  const sim::Plan least = sim::Shrink(sim::DrawPlan(seed));
  std::printf("the smallest set of faults that still fails:\n");
  for (const sim::Fault& fault : least.faults) std::printf("  %s\n", sim::ToString(fault).c_str());
  for (const sim::Violation& violation : sim::RunPlan(least).violations) {
    std::printf("  -> %s: %s\n", violation.guarantee.c_str(), violation.what.c_str());
  }
}

}  // namespace

int RunSim(const SimOptions& options) {
  const std::optional<Range> range = ParseRange(options.seeds);
  if (!range)
    return Fail("--seeds: expected a number, or A..B with A <= B; got " + options.seeds, 2);
  const auto begin = std::chrono::steady_clock::now();
  const sim::SeedsResult result =
      sim::RunSeeds(range->first, range->last, static_cast<int>(options.threads),
                    static_cast<uint64_t>(options.max_failed));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  std::printf("%llu seeds, %llu events, %llu faults, %llu failed, %.1f s\n", number(result.seeds),
              number(result.total.events), number(result.total.faults), number(result.failed),
              took.count());
  for (const auto& [name, times] : result.total.reached) {
    std::printf("  %12llu  %s\n", number(times), name.c_str());
  }
  if (result.first_failed) PrintFailure(*result.first_failed, result.total);
  if (options.json) {
    nlohmann::json json = {{"seeds", result.seeds},         {"events", result.total.events},
                           {"faults", result.total.faults}, {"violations", result.failed},
                           {"seconds", took.count()},       {"reached", result.total.reached}};
    if (result.first_failed) json["first_failed"] = *result.first_failed;
    std::printf("%s\n", json.dump().c_str());
  }
  return result.failed == 0 ? 0 : 1;
}

}  // namespace kvcast::tools
