// Runs the scheme detector on a recorded run, with only its events as input.
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

// A recorded run without its steps: the events that a router receives, and the true scheme.
struct RecordedStream {
  std::string path;
  ScenarioConfig config;
  std::vector<Event> events;
  std::map<std::string, std::string> lora_paths;  // by name; configured in the detector
  std::set<std::string> other_paths;              // names that are used with several paths
};
Result<RecordedStream> ReadRecordedStream(const std::string& path);

struct SchemeOutcome {
  SchemeVerdict verdict;
  SchemeCounters counters;
  // Number of testable stores up to and including the store that caused the verdict kMismatch; 0:
  // never.
  uint64_t mismatch_after = 0;
};
// REQUIRES: `config` is valid.
SchemeOutcome ReplayScheme(const RecordedStream& stream, const SchemeDetectorConfig& config);

// A registration with one wrong property.
struct WrongRegistration {
  std::string property;
  SchemeDetectorConfig config;
};
// Returns registrations with `candidates` and one wrong property: a wrong algorithm, a wrong seed,
// or a wrong hash block size (twice or half of the right size).
std::vector<WrongRegistration> WrongRegistrations(const ScenarioConfig& truth,
                                                  const SchemeDetectorConfig& candidates);

// The candidates are the NONE_HASHes of all streams, the same number of NONE_HASHes that no stream
// has, and two seeds that no stream has. Every testable store is tested.
SchemeDetectorConfig SchemeCandidates(const std::vector<RecordedStream>& streams);
// Returns `candidates` without `none_hash`.
SchemeDetectorConfig Without(SchemeDetectorConfig candidates, const std::string& none_hash);

// A wrong registration must be reported within this number of testable stores.
inline constexpr uint64_t kStoresToReport = 16;

// Checks a stream. The scheme must be found. If each adapter name has only one path, no store may
// contradict the scheme. A kind of key may be proven only in the form of the engine, and only by
// stores that have a key of this kind. Without the right seed, the state must be kTokenMode.
// Every wrong registration must be reported within kStoresToReport stores. The report must name the
// right scheme if this scheme is among the candidates. Returns one line about the stream.
using SchemeCheck = std::function<void(bool equal, const std::string& difference)>;
std::string CheckScheme(const RecordedStream& stream, const SchemeDetectorConfig& candidates,
                        const SchemeCheck& check);

}  // namespace kvcast::tools
