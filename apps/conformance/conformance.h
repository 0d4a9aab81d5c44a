// Conformance runs: compare recorded data with our own code and count the results.
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
  uint64_t equal = 0;                          // checks with the recorded result
  uint64_t unsupported = 0;                    // records that could not be checked
  std::vector<std::string> first_differences;  // at most one line per file
  // Router class: the difference between a policy's answers and the engine's own, over all files.
  struct PolicyFigures {
    std::string policy;
    uint64_t probes = 0;
    double exact_percent = 0;
    double over_tokens_per_probe = 0;   // predicted tokens that the engine did not have
    double under_tokens_per_probe = 0;  // tokens of the engine that were not predicted
  };
  std::vector<PolicyFigures> policies;
  // Router class, exact policy: whether the service marked its answers as exact.
  struct ExactFigures {
    uint64_t exact = 0;
    uint64_t exact_wrong = 0;
    std::map<std::string, uint64_t> not_exact;  // by reason
    // Answers that were not exact, although the scheme was proven for the prompt's kinds of key.
    uint64_t proven_not_exact = 0;
    // Answers that were not equal, under the same condition, of a router that joined by a snapshot.
    uint64_t joined_not_equal = 0;
    // Answers after the first hits of each file: all, equal ones and exact ones.
    uint64_t settled = 0;
    uint64_t settled_equal = 0;
    uint64_t settled_exact = 0;
    // True: only exact_wrong decides whether the run fails.
    bool only_exact_counts = false;
  };
  std::optional<ExactFigures> exactness;
  std::vector<std::string> notes;  // one line about each file, for people

  bool ok() const {
    if (compared == 0 || unsupported > 0) return false;
    if (exactness && exactness->only_exact_counts) {
      return exactness->exact_wrong + exactness->joined_not_equal == 0;
    }
    const uint64_t doubts = exactness ? exactness->exact_wrong + exactness->proven_not_exact : 0;
    return equal == compared && doubts == 0;
  }
};

// Each function takes files or folders (searched for the files of its class). Not ok: a path does
// not exist, cannot be read, or is not of this class; the message names it.
Status RunWireConformance(const std::vector<std::string>& paths, ConformanceReport& report);
Status RunFramesConformance(const std::vector<std::string>& paths, ConformanceReport& report);
Status RunHashConformance(const std::vector<std::string>& paths, ConformanceReport& report);
Status RunEngineConformance(const std::vector<std::string>& paths, ConformanceReport& report);
// Folders are searched recursively, except for `known-defects`. `compatible` true: by the rules of
// the engine. False: by our own rules, which differ where the engine has a defect.
Status RunOffloadConformance(const std::vector<std::string>& paths, ConformanceReport& report,
                             bool compatible = true);

struct RouterConformanceOptions {
  // exact, full-only, any-group, group-blind, min-of-maxima or all. The checks of only one policy
  // are counted: with all, those of exact.
  std::string policy = "exact";
  // The source of the events for the policies other than exact:
  //   recorded     the recorded payload through the decoder, if a step has one; else the events
  //                unchanged
  //   decoded      the events unchanged
  //   wire         all steps through the decoder; our encoder encodes the steps without a payload
  //   interleaved  exact policy only: every file twice, all as workers of one index, their steps in
  //                random order; every probe is matched against all workers
  // The exact policy uses the service's own source and query, and therefore the decoder.
  std::string feed = "recorded";
  uint64_t seed = 1;  // for feed interleaved, and for joins
  // The properties of the engine that are configured in the service: all, or only the endpoint.
  // With all, every answer must be equal; with nothing, no exact answer may be wrong.
  std::string told = "all";
  // found: the engine's seed is among the candidates. unknown: the seed is not among them, so no
  // hash can be verified or computed.
  std::string scheme = "found";
  // If not 0, the router joins late, at so many random steps of each file, and once more at each of
  // them by a snapshot. No exact answer may be wrong. After a join by snapshot, every answer must
  // be equal if the scheme is proven.
  uint64_t joins = 0;
};
Status RunRouterConformance(const std::vector<std::string>& paths,
                            const RouterConformanceOptions& options, ConformanceReport& report);
// Uses scenarios. Checks that the hash scheme is detected from the events alone, and that a wrong
// registration is reported.
Status RunSchemeConformance(const std::vector<std::string>& paths, ConformanceReport& report);

}  // namespace kvcast::tools
