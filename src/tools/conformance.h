// Conformance runs: recorded data against our own code, counted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/status.h"

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
  // Router class, token mode: what the events do not carry may be promised too little, by reason.
  struct TokenModeFigures {
    uint64_t above = 0;                     // probes promised more than the engine reuses
    uint64_t explained = 0;                 // probes promised less, the events being the reason
    std::map<std::string, uint64_t> below;  // probes promised less, by reason
  };
  std::optional<TokenModeFigures> token_mode;
  std::vector<std::string> notes;  // about each file, for people

  bool ok() const {
    const uint64_t explained = token_mode ? token_mode->explained : 0;
    return compared > 0 && equal + explained == compared && unsupported == 0;
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
  // How the events come in. recorded: the recorded payload through the decoder, where a step has
  // one, else the events as they are; decoded: the events as they are; wire: all through the
  // decoder, encoded by us where no payload was recorded; interleaved: as decoded, every file
  // twice, all as workers of one index, their steps in random order, and every probe asked of all
  // workers.
  std::string feed = "recorded";
  uint64_t seed = 1;  // of interleaved
  // engine-hash; or, for the exact policy, without the engines' hash algorithm and seed: token, and
  // token-events, which is not told either which blocks the engines cache.
  std::string mode = "engine-hash";
};
Status RunRouterConformance(const std::vector<std::string>& paths,
                            const RouterConformanceOptions& options, ConformanceReport& report);
// Scenarios again: is the hash scheme found out from the events alone, and a wrong registration
// reported?
Status RunSchemeConformance(const std::vector<std::string>& paths, ConformanceReport& report);

}  // namespace kvcast::tools
