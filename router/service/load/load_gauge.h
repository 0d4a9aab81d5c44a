// LoadGauge: the whole load in flight of one router, as one message. docs/several-routers.md
// describes the format.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/status.h"
#include "router/select/in_flight.h"

namespace kvcast::router {

inline constexpr size_t kMaxGaugeBytes = 4 << 20;
inline constexpr size_t kMaxGaugeWorkers = 65535;
inline constexpr size_t kMaxOriginBytes = 128;
inline constexpr int64_t kMinLoadPeriodMs = 10;
inline constexpr int64_t kMaxLoadPeriodMs = 1000;

struct WorkerGauge {
  std::string worker;  // the name; not empty
  InFlight load;

  bool operator==(const WorkerGauge&) const = default;
};

// The loads of one router at one time. Rates: see FleetInFlight.
struct OriginLoad {
  std::vector<WorkerGauge> workers;  // in the order of the names, without workers that have no load
  double arrivals_per_s = 0;
  double work_s_per_s = 0;

  bool operator==(const OriginLoad&) const = default;
};

struct LoadGauge {
  std::string origin;     // the name of the router
  uint64_t epoch = 0;     // number of the router's run; a later run has a larger number
  uint64_t seq = 0;       // number of the message in this run
  int64_t period_ms = 0;  // the router sends a message at least this often
  OriginLoad load;

  bool operator==(const LoadGauge&) const = default;
};

// Loads above the bounds of the format are lowered to the bounds. Workers whose names are not UTF-8
// or are longer than 1024 bytes are left out. Error: the message would have more than
// kMaxGaugeBytes or kMaxGaugeWorkers.
Result<std::vector<uint8_t>> EncodeGauge(const LoadGauge& gauge);

// Why a message is refused.
enum class GaugeReject : uint8_t {
  kMalformed,  // not the array of the format, or a value out of its bounds
  kVersion,    // another version of the format
  kOldGauge,   // an older message of the origin, or a message that was already received
  kSameName,   // another router has the name of this router
  kTooMany,    // more origins or more workers than PeerLoads takes
};
inline constexpr size_t kGaugeRejects = 5;
std::string_view GaugeRejectName(GaugeReject reject);

// False: `reject` is kMalformed or kVersion, and `gauge` has no meaning.
bool DecodeGauge(std::span<const uint8_t> bytes, LoadGauge& gauge, GaugeReject& reject);

}  // namespace kvcast::router
