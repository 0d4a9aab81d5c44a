// What the scheme detector makes of a recorded run, told nothing but its events.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "apps/conformance/scenario/scenario.h"
#include "kvcast/router/scheme_detector.h"

namespace kvcast::tools {

// A recorded run without its steps: what a router would see of it, and the truth.
struct RecordedStream {
  std::string path;
  ScenarioConfig config;
  std::vector<Event> events;
  std::map<std::string, std::string> lora_paths;  // by name; told to the detector
  std::set<std::string> other_paths;              // names that stand for several paths
};
Result<RecordedStream> ReadRecordedStream(const std::string& path);

struct SchemeOutcome {
  SchemeVerdict verdict;
  SchemeCounters counters;
  uint64_t mismatch_after = 0;  // testable stores until the verdict was kMismatch; 0: never
};
// REQUIRES: `config` is valid.
SchemeOutcome ReplayScheme(const RecordedStream& stream, const SchemeDetectorConfig& config);

// A registration that is wrong in one thing.
struct WrongRegistration {
  std::string what;
  SchemeDetectorConfig config;
};
// `candidates` and, on top, a wrong algorithm, seed, and hash unit (twice and half the right one).
std::vector<WrongRegistration> WrongRegistrations(const ScenarioConfig& truth,
                                                  const SchemeDetectorConfig& candidates);

// Candidates: the NONE_HASHes of all streams, and as many that no stream has. Every testable store
// is tested.
SchemeDetectorConfig SchemeCandidates(const std::vector<RecordedStream>& streams);
SchemeDetectorConfig Without(SchemeDetectorConfig candidates, const std::string& none_hash);

// A planted wrong registration must be reported within so many testable stores.
inline constexpr uint64_t kStoresToReport = 16;

// All that must hold for a stream: the scheme is named, and no store contradicts it; every kind of
// key is proven in the form of the engine, and none by the stores of another; without the right
// seed, token mode; every wrong registration is reported in time, and the right scheme named if it
// is among the candidates. Gives back one line about the stream.
using SchemeCheck = std::function<void(bool equal, const std::string& what)>;
std::string CheckScheme(const RecordedStream& stream, const SchemeDetectorConfig& candidates,
                        const SchemeCheck& check);

}  // namespace kvcast::tools
