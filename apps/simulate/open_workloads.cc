// Open-loop workloads: chat (the Mooncake format), arrivals without prompts (the Azure format), and
// a generator of shared prompts.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>

#include "apps/simulate/random.h"
#include "apps/simulate/workload_sources.h"
#include "apps/support/file.h"

namespace kvcast::simulate {
namespace {

constexpr double kSharedLoad = 0.8;
constexpr double kTraceLoad = 0.8;
constexpr int64_t kChatRequests = 780;
constexpr double kChatFleetTokensPerRequest =
    6000;  // cache tokens of the fleet per request of a slice

constexpr int64_t kSharedRequests = 3000;
constexpr int64_t kSharedPrompts = 400;
constexpr int64_t kSharedFleetTokens = 4'000'000;
constexpr int64_t kSharedBlockTokens = 64;

constexpr int64_t kAzureRequests = 780;
constexpr int64_t kAzureFleetTokens = 4'000'000;
constexpr int64_t kAzureBlockTokens = 512;

// Makes slices of equal size from `requests`, which are ordered by time. A slice has at most `most`
// requests; the remaining requests are left out. Each slice starts at 0 s.
std::vector<Slice> Cut(std::vector<WorkloadRequest> requests, int64_t block_tokens, int64_t slices,
                       int64_t most) {
  const auto count = static_cast<int64_t>(requests.size());
  slices = std::clamp<int64_t>(slices, 1, count);
  const int64_t each = std::min(most, count / slices);
  std::vector<Slice> result;
  for (int64_t s = 0; s < slices; ++s) {
    const auto begin = requests.begin() + s * each;
    Slice slice{.block_tokens = block_tokens, .requests = {begin, begin + each}};
    const double start = slice.requests.front().delay_s;
    for (WorkloadRequest& request : slice.requests) request.delay_s -= start;
    LinkTurns(slice);
    result.push_back(std::move(slice));
  }
  return result;
}

template <typename T>
bool ReadNumber(std::string_view text, T& value) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  return end.ec == std::errc() && end.ptr == text.data() + text.size();
}

// Returns a time as seconds since 1970. Form of the text: "2023-11-16 18:15:46.6805900", with or
// without "+00:00". nullopt: the text has another form.
std::optional<double> ParseTime(std::string_view text) {
  if (text.ends_with("+00:00")) text.remove_suffix(6);
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  unsigned hours = 0;
  unsigned minutes = 0;
  double seconds = 0;
  const bool formed = text.size() > 17 && text[4] == '-' && text[7] == '-' && text[10] == ' ' &&
                      text[13] == ':' && text[16] == ':' && text[17] != '-';
  if (!formed || !ReadNumber(text.substr(0, 4), year) || !ReadNumber(text.substr(5, 2), month) ||
      !ReadNumber(text.substr(8, 2), day) || !ReadNumber(text.substr(11, 2), hours) ||
      !ReadNumber(text.substr(14, 2), minutes) || !ReadNumber(text.substr(17), seconds)) {
    return std::nullopt;
  }
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month),
                                         std::chrono::day(day)};
  // `!(seconds < 61)` also refuses NaN.
  if (!date.ok() || hours > 23 || minutes > 59 || !(seconds < 61)) return std::nullopt;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return 86400.0 * static_cast<double>(days) + 3600 * hours + 60 * minutes + seconds;
}

std::vector<WorkloadRequest> RequestsOfTrace(const std::vector<tools::TraceRequest>& trace) {
  std::vector<WorkloadRequest> requests;
  for (const tools::TraceRequest& recorded : trace) {
    WorkloadRequest request{.delay_s = recorded.arrival_s,
                            .session = std::ssize(requests),
                            .prompt_tokens = recorded.input_length,
                            .output_tokens = recorded.output_length};
    request.blocks.assign(recorded.block_ids.begin(), recorded.block_ids.end());
    request.blocks.resize(static_cast<size_t>(recorded.input_length / tools::kTraceBlockTokens));
    requests.push_back(std::move(request));
  }
  return requests;
}

// A line "TIMESTAMP,ContextTokens,GeneratedTokens", for example
// "2023-11-16 18:15:46.6805900,374,44".
struct AzureRow {
  double seconds = 0;  // since 1970
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
};
// nullopt: the line has another form, or a count is out of range.
std::optional<AzureRow> ParseAzureRow(std::string_view line) {
  const size_t first = line.find(',');
  const size_t second = line.find(',', first + 1);
  if (first == line.npos || second == line.npos) return std::nullopt;
  const auto time = ParseTime(line.substr(0, first));
  AzureRow row;
  const bool valid = time &&
                     ReadNumber(line.substr(first + 1, second - first - 1), row.prompt_tokens) &&
                     ReadNumber(line.substr(second + 1), row.output_tokens);
  if (!valid || row.prompt_tokens < 1 || row.prompt_tokens > (int64_t{1} << 24) ||
      row.output_tokens < 0 || row.output_tokens > (int64_t{1} << 20)) {
    return std::nullopt;
  }
  row.seconds = *time;
  return row;
}

}  // namespace

Slice SliceOfTrace(const std::vector<tools::TraceRequest>& trace) {
  Slice slice{.block_tokens = tools::kTraceBlockTokens, .requests = RequestsOfTrace(trace)};
  LinkTurns(slice);
  return slice;
}

Result<Workload> ParseMooncake(std::string_view text, const std::string& name,
                               const SliceOptions& options) {
  auto trace = tools::ParseTrace(text, name, 0);
  if (!trace.ok()) return trace.status();
  Workload workload{.name = name, .slices = {}, .load = kTraceLoad};
  workload.slices = Cut(RequestsOfTrace(*trace), tools::kTraceBlockTokens, options.slices,
                        options.requests > 0 ? options.requests : kChatRequests);
  workload.fleet_tokens = std::llround(
      kChatFleetTokensPerRequest * static_cast<double>(workload.slices.front().requests.size()));
  return workload;
}

Result<Workload> ParseAzure(std::string_view text, const std::string& name,
                            const SliceOptions& options) {
  std::vector<WorkloadRequest> requests;
  int64_t number = 0;
  for (const std::string_view line : tools::SplitLines(text)) {
    ++number;
    if (line.empty() || (number == 1 && line.starts_with("TIMESTAMP"))) continue;
    const auto row = ParseAzureRow(line);
    if (!row) {
      return Status(StatusCode::kMalformed,
                    name + ":" + std::to_string(number) +
                        ": expected DATE TIME,ContextTokens,GeneratedTokens");
    }
    const auto session = static_cast<uint64_t>(std::ssize(requests));
    WorkloadRequest request{.delay_s = row->seconds,
                            .session = std::ssize(requests),
                            .prompt_tokens = row->prompt_tokens,
                            .output_tokens = std::max<int64_t>(row->output_tokens, 1)};
    for (int64_t b = 0; b < row->prompt_tokens / kAzureBlockTokens; ++b) {
      request.blocks.push_back(Mix(session, static_cast<uint64_t>(b)));
    }
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return Status(StatusCode::kMalformed, name + ": holds no request");
  std::ranges::stable_sort(requests, {}, &WorkloadRequest::delay_s);
  Workload workload{
      .name = name, .slices = {}, .fleet_tokens = kAzureFleetTokens, .load = kTraceLoad};
  workload.slices = Cut(std::move(requests), kAzureBlockTokens, options.slices,
                        options.requests > 0 ? options.requests : kAzureRequests);
  return workload;
}

Workload GenerateShared(const SliceOptions& options) {
  Workload workload{
      .name = kShared, .slices = {}, .fleet_tokens = kSharedFleetTokens, .load = kSharedLoad};
  const int64_t count = options.requests > 0 ? options.requests : kSharedRequests;
  for (int64_t s = 0; s < std::max<int64_t>(options.slices, 1); ++s) {
    Random random(Mix(options.seed, static_cast<uint64_t>(s)));
    // Popularity of prompt p: 1 / (p + 1).
    std::vector<double> cumulative;
    std::vector<int64_t> length;  // in blocks
    for (int64_t p = 0; p < kSharedPrompts; ++p) {
      cumulative.push_back((cumulative.empty() ? 0 : cumulative.back()) +
                           1 / static_cast<double>(p + 1));
      length.push_back(random.Between(2000 / kSharedBlockTokens, 14000 / kSharedBlockTokens));
    }
    Slice slice{.block_tokens = kSharedBlockTokens, .requests = {}};
    double time = 0;
    for (int64_t r = 0; r < count; ++r) {
      const double drawn = random.Unit() * cumulative.back();
      const auto prompt =
          std::upper_bound(cumulative.begin(), cumulative.end(), drawn) - cumulative.begin();
      WorkloadRequest request{.delay_s = time, .session = r};
      const int64_t question = random.Between(64, 1500);
      request.output_tokens = random.Between(50, 400);
      const int64_t shared = length[static_cast<size_t>(prompt)];
      request.prompt_tokens = shared * kSharedBlockTokens + question;
      const uint64_t prompt_seed = Mix(static_cast<uint64_t>(s), static_cast<uint64_t>(prompt));
      for (int64_t b = 0; b < request.prompt_tokens / kSharedBlockTokens; ++b) {
        const uint64_t owner =
            b < shared ? prompt_seed : Mix(prompt_seed, static_cast<uint64_t>(r) + 1);
        request.blocks.push_back(Mix(owner, static_cast<uint64_t>(b)));
      }
      slice.requests.push_back(std::move(request));
      time += random.Exponential(1);  // the simulation scales the times to the load
    }
    workload.slices.push_back(std::move(slice));
  }
  return workload;
}

}  // namespace kvcast::simulate
