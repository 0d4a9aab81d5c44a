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
  uint64_t equal = 0;                          // checks whose result equals the recorded result
  uint64_t unsupported = 0;                    // records that could not be checked
  std::vector<std::string> first_differences;  // at most one line per file
  // Router class: the difference between a policy's answers and the engine's own lookups, over all
  // files.
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
    // Answers that were not equal after a join by a snapshot, although the scheme was proven.
    // Counted only if all properties of the engine are configured.
    uint64_t joined_not_equal = 0;
    // Answers after the first kSettledHits hits of each file: all answers, the equal answers, and
    // the exact answers.
    uint64_t settled = 0;
    uint64_t settled_equal = 0;
    uint64_t settled_exact = 0;
    // True: of all wrong answers, only exact_wrong and joined_not_equal make the run fail.
    bool only_exact_counts = false;
  };
  std::optional<ExactFigures> exactness;
  std::vector<std::string> notes;  // one line about each file, for people

  bool ok() const {
    if (compared == 0 || unsupported > 0) return false;
    if (exactness && exactness->only_exact_counts) {
      return exactness->exact_wrong + exactness->joined_not_equal == 0;
    }
    const uint64_t exactness_errors =
        exactness ? exactness->exact_wrong + exactness->proven_not_exact : 0;
    return equal == compared && exactness_errors == 0;
  }
};

// Each function takes files and folders. It searches a folder for the files of its class. Not ok: a
// path does not exist, cannot be read, or is not of this class. The message names the path.
Status RunWireConformance(const std::vector<std::string>& paths, ConformanceReport& report);
Status RunFramesConformance(const std::vector<std::string>& paths, ConformanceReport& report);
Status RunHashConformance(const std::vector<std::string>& paths, ConformanceReport& report);
Status RunEngineConformance(const std::vector<std::string>& paths, ConformanceReport& report);
// Searches folders recursively, except for folders named `known-defects`. If `compatible` is true,
// our code follows the rules of the engine. If it is false, our code follows our own rules, which
// differ where the engine has a defect.
Status RunOffloadConformance(const std::vector<std::string>& paths, ConformanceReport& report,
                             bool compatible = true);

struct RouterConformanceOptions {
  // exact, full-only, any-group, group-blind, min-of-maxima or all. The report counts the checks of
  // one policy only. With all, it counts the checks of the policy exact.
  std::string policy = "exact";
  // The events of a step:
  //   recorded     The decoder decodes the recorded payload.
  //                A step without a payload has the recorded events.
  //   decoded      The step has the recorded events.
  //   wire         The decoder decodes the payload.
  //                For a step without a payload, our encoder first encodes the events.
  //   interleaved  Only for the policy exact. Each file becomes two workers. One index has the
  //                workers of all files. The steps of the workers run in random order.
  //                Every probe is matched against all workers.
  // For the policy exact, the first three feeds are equal: the service decodes the payloads and
  // answers the queries itself.
  std::string feed = "recorded";
  uint64_t seed = 1;  // for feed interleaved, and for joins
  // The properties of the engine that are configured in the service: all, or nothing (only the
  // endpoint). With all, every answer must be equal. With nothing, no exact answer may be wrong.
  std::string told = "all";
  // found: the engine's seed is among the candidates. unknown: the seed is not among them, so no
  // hash can be verified or computed.
  std::string scheme = "found";
  // If not 0, the router joins late, at this number of random steps of each file. At each of these
  // steps there are two runs: a join without a snapshot, and a join by a snapshot. No exact answer
  // may be wrong. After a join by a snapshot, every answer must be equal if the scheme is proven
  // and all properties are configured.
  uint64_t joins = 0;
};
Status RunRouterConformance(const std::vector<std::string>& paths,
                            const RouterConformanceOptions& options, ConformanceReport& report);
// Uses scenarios. Checks that the hash scheme is detected from the events alone, and that a wrong
// registration is reported.
Status RunSchemeConformance(const std::vector<std::string>& paths, ConformanceReport& report);

}  // namespace kvcast::tools
