// SPDX-License-Identifier: Apache-2.0
#include "router/service/load/load_gauge.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "src/wire/reader.h"
#include "src/wire/utf8.h"
#include "src/wire/writer.h"

namespace kvcast::router {
namespace {

constexpr uint64_t kGaugeVersion = 1;
constexpr size_t kGaugeMembers = 8;
constexpr size_t kWorkerMembers = 6;
constexpr size_t kMaxWorkerNameBytes = 1024;
constexpr double kMaxRate = 1e9;
// The sums of the loads of all origins stay below 2^63.
constexpr int64_t kMaxLoadCount = int64_t{1} << 32;
constexpr int64_t kMaxLoadTokens = int64_t{1} << 52;

struct LoadMember {
  int64_t InFlight::*of;
  int64_t most;
};
// In the order of the format.
constexpr std::array kLoadMembers = {LoadMember{&InFlight::prompts, kMaxLoadCount},
                                     LoadMember{&InFlight::prompt_tokens, kMaxLoadTokens},
                                     LoadMember{&InFlight::prompt_pairs, kMaxLoadTokens},
                                     LoadMember{&InFlight::decodes, kMaxLoadCount},
                                     LoadMember{&InFlight::decode_context, kMaxLoadTokens}};
static_assert(kLoadMembers.size() + 1 == kWorkerMembers);

bool IsGaugeName(std::string_view name, size_t most) {
  return !name.empty() && name.size() <= most && wire::IsUtf8(name);
}

// Reads the values of a message. After a call that returned false, the position has no meaning.
class GaugeReader {
 public:
  explicit GaugeReader(std::span<const uint8_t> bytes) : in_(bytes) {}

  bool at_end() const { return in_.at_end(); }
  bool Number(uint64_t& number) {
    wire::Value value;
    if (!in_.Next(value) || value.kind != wire::Kind::kUnsigned) return false;
    number = value.number;
    return true;
  }
  bool Number(int64_t least, int64_t most, int64_t& number) {
    uint64_t value = 0;
    if (!Number(value) || value > static_cast<uint64_t>(most)) return false;
    number = static_cast<int64_t>(value);
    return number >= least;
  }
  bool Rate(double& rate) {
    wire::Value value;
    if (!in_.Next(value) || value.kind != wire::Kind::kFloat) return false;
    rate = value.as_double();
    return rate >= 0 && rate <= kMaxRate;  // false for a NaN
  }
  bool Name(size_t most, std::string& name) {
    wire::Value value;
    if (!in_.Next(value) || value.kind != wire::Kind::kText) return false;
    name = value.as_view().substr(0, most + 1);
    return IsGaugeName(name, most);
  }
  bool Array(size_t& count) {
    wire::Value value;
    if (!in_.Next(value) || value.kind != wire::Kind::kArray) return false;
    count = static_cast<size_t>(value.number);
    return true;
  }

 private:
  wire::Reader in_;
};

bool ReadWorker(GaugeReader& in, WorkerGauge& gauge) {
  size_t members = 0;
  if (!in.Array(members) || members != kWorkerMembers) return false;
  if (!in.Name(kMaxWorkerNameBytes, gauge.worker)) return false;
  for (const LoadMember& member : kLoadMembers) {
    if (!in.Number(0, member.most, gauge.load.*member.of)) return false;
  }
  return !gauge.load.empty();
}

bool ReadLoad(GaugeReader& in, OriginLoad& load) {
  size_t workers = 0;
  if (!in.Rate(load.arrivals_per_s) || !in.Rate(load.work_s_per_s)) return false;
  if (!in.Array(workers) || workers > kMaxGaugeWorkers) return false;
  load.workers.clear();
  for (size_t i = 0; i < workers; ++i) {
    WorkerGauge gauge;
    if (!ReadWorker(in, gauge)) return false;
    if (i > 0 && gauge.worker <= load.workers.back().worker) return false;
    load.workers.push_back(std::move(gauge));
  }
  return true;
}

double Bounded(double rate) { return std::isnan(rate) ? 0 : std::clamp(rate, 0.0, kMaxRate); }

}  // namespace

std::string_view GaugeRejectName(GaugeReject reject) {
  constexpr std::array<std::string_view, kGaugeRejects> kNames = {"malformed", "version", "old",
                                                                  "same_name", "too_many_origins"};
  return kNames[static_cast<size_t>(reject)];
}

Result<std::vector<uint8_t>> EncodeGauge(const LoadGauge& gauge) {
  std::vector<const WorkerGauge*> workers;
  for (const WorkerGauge& worker : gauge.load.workers) {
    if (IsGaugeName(worker.worker, kMaxWorkerNameBytes)) workers.push_back(&worker);
  }
  if (workers.size() > kMaxGaugeWorkers) {
    return Status(StatusCode::kExhausted, "more than 65535 workers have a load");
  }
  std::vector<uint8_t> bytes;
  wire::Writer out(bytes);
  out.ArrayHead(kGaugeMembers);
  out.Unsigned(kGaugeVersion);
  out.Text(gauge.origin);
  out.Unsigned(gauge.epoch);
  out.Unsigned(gauge.seq);
  out.Signed(gauge.period_ms);
  out.Float(Bounded(gauge.load.arrivals_per_s));
  out.Float(Bounded(gauge.load.work_s_per_s));
  out.ArrayHead(workers.size());
  for (const WorkerGauge* worker : workers) {
    out.ArrayHead(kWorkerMembers);
    out.Text(worker->worker);
    for (const LoadMember& member : kLoadMembers) {
      out.Signed(std::clamp<int64_t>(worker->load.*member.of, 0, member.most));
    }
  }
  out.Close();
  if (bytes.size() > kMaxGaugeBytes) {
    return Status(StatusCode::kExhausted, "the message is longer than 4 MiB");
  }
  return bytes;
}

bool DecodeGauge(std::span<const uint8_t> bytes, LoadGauge& gauge, GaugeReject& reject) {
  reject = GaugeReject::kMalformed;
  if (bytes.size() > kMaxGaugeBytes) return false;
  GaugeReader in(bytes);
  size_t members = 0;
  uint64_t version = 0;
  if (!in.Array(members) || members == 0 || !in.Number(version)) return false;
  if (version != kGaugeVersion) reject = GaugeReject::kVersion;
  if (version != kGaugeVersion || members != kGaugeMembers) return false;
  return in.Name(kMaxOriginBytes, gauge.origin) && in.Number(gauge.epoch) && in.Number(gauge.seq) &&
         in.Number(kMinLoadPeriodMs, kMaxLoadPeriodMs, gauge.period_ms) &&
         ReadLoad(in, gauge.load) && in.at_end();
}

}  // namespace kvcast::router
