// Conformance runs: recorded data against our own code, counted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast::tools {

struct ConformanceReport {
  uint64_t files = 0;
  uint64_t compared = 0;                       // checks made
  uint64_t equal = 0;                          // of them, with the recorded outcome
  uint64_t unsupported = 0;                    // records that could not be checked
  std::vector<std::string> first_differences;  // at most one line per file
  // Router class: how far the answers of a policy are from the engine's own, in all files.
  struct PolicyFigures {
    std::string policy;
    uint64_t probes = 0;
    double exact_percent = 0;
    double over_tokens_per_probe = 0;   // promised and not there
    double under_tokens_per_probe = 0;  // there and not promised
  };
  std::vector<PolicyFigures> policies;
  // Router class, exact policy: what the service said of its own answers.
  struct ExactFigures {
    uint64_t exact = 0;
    uint64_t exact_wrong = 0;
    std::map<std::string, uint64_t> not_exact;  // by reason
    uint64_t proven_not_exact = 0;  // though the scheme was proven for the prompt's kinds of key
    // Of a router that joined by snapshot: likewise, and not equal.
    uint64_t joined_not_equal = 0;
    // After the first hits of each file: compared, and of these equal and exact.
    uint64_t settled = 0;
    uint64_t settled_equal = 0;
    uint64_t settled_exact = 0;
    // Whether the run is judged by exact_wrong alone.
    bool only_exact_counts = false;
  };
  std::optional<ExactFigures> exactness;
  std::vector<std::string> notes;  // about each file, for people

  bool ok() const {
    if (compared == 0 || unsupported > 0) return false;
    if (exactness && exactness->only_exact_counts) {
      return exactness->exact_wrong + exactness->joined_not_equal == 0;
    }
    const uint64_t doubts = exactness ? exactness->exact_wrong + exactness->proven_not_exact : 0;
    return equal == compared && doubts == 0;
  }
};

// Each takes files or folders (walked for the files of its class). Not ok: a path does not exist,
// cannot be read, or is not of this class; the message names it.
Status RunWireConformance(const std::vector<std::string>& paths, ConformanceReport& report);
Status RunFramesConformance(const std::vector<std::string>& paths, ConformanceReport& report);
Status RunHashConformance(const std::vector<std::string>& paths, ConformanceReport& report);
Status RunEngineConformance(const std::vector<std::string>& paths, ConformanceReport& report);
// Folders are walked with those in them, but not into `known-defects`. `compatible`: by the rules
// of the engine; else by our own, which decide otherwise where the engine is at fault.
Status RunOffloadConformance(const std::vector<std::string>& paths, ConformanceReport& report,
                             bool compatible = true);

struct RouterConformanceOptions {
  // exact, full-only, any-group, group-blind, min-of-maxima or all. Checks are counted for one
  // policy alone: exact where it is all.
  std::string policy = "exact";
  // How the events of other policies than exact come in. recorded: the recorded payload through the
  // decoder, where a step has one, else the events as they are; decoded: the events as they are;
  // wire: all through the decoder, encoded by us where no payload was recorded. The exact policy
  // goes through the service's own source and query, and so through the decoder. interleaved: the
  // exact index alone, every file twice, all as workers of one index, their steps in random order,
  // and every probe asked of all workers.
  std::string feed = "recorded";
  uint64_t seed = 1;  // of interleaved, and of joins
  // Properties of the engine that the service is told: all, or nothing but the endpoint. With all,
  // every answer must be equal; with nothing, no answer may be exact and wrong.
  std::string told = "all";
  // found: the engine's seed is among the candidates. unknown: it is not, so that no hash can be
  // verified or computed.
  std::string scheme = "found";
  // If not 0, the router joins late, at so many random steps of each file, and once more at each by
  // a snapshot. No answer may be exact and wrong; joined by snapshot, every answer must be equal
  // where the scheme is proven.
  uint64_t joins = 0;
};
Status RunRouterConformance(const std::vector<std::string>& paths,
                            const RouterConformanceOptions& options, ConformanceReport& report);
// Scenarios again: is the hash scheme found out from the events alone, and a wrong registration
// reported?
Status RunSchemeConformance(const std::vector<std::string>& paths, ConformanceReport& report);

}  // namespace kvcast::tools
