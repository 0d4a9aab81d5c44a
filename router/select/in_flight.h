// InFlight and FleetInFlight: the load that the requests in flight put on one engine, and on a
// fleet. Loads of several routers can be added.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>

#include "kvcast/core/ids.h"

namespace kvcast {

struct InFlight {
  int64_t prompts = 0;        // requests whose first token is not known yet
  int64_t prompt_tokens = 0;  // tokens of these prompts that the engine must compute
  // Pairs of a token of prompt_tokens and a token that it reads (WorkPart::kPrefillPairs), rounded
  // down.
  int64_t prompt_pairs = 0;
  int64_t decodes = 0;         // requests in decode
  int64_t decode_context = 0;  // tokens that these requests read

  bool operator==(const InFlight&) const = default;
  bool empty() const { return prompts == 0 && decodes == 0; }
  InFlight& operator+=(const InFlight& other) {
    prompts += other.prompts;
    prompt_tokens += other.prompt_tokens;
    prompt_pairs += other.prompt_pairs;
    decodes += other.decodes;
    decode_context += other.decode_context;
    return *this;
  }
};

struct FleetInFlight {
  std::unordered_map<WorkerId, InFlight> workers;  // a missing worker has no load
  // Recent rates over all workers: routed prompts per second, and seconds of prompt computation per
  // second.
  double arrivals_per_s = 0;
  double work_s_per_s = 0;

  FleetInFlight& operator+=(const FleetInFlight& other) {
    for (const auto& [worker, load] : other.workers) workers[worker] += load;
    arrivals_per_s += other.arrivals_per_s;
    work_s_per_s += other.work_s_per_s;
    return *this;
  }
};

}  // namespace kvcast
