// A workload: the requests that a simulation sends to a fleet, with their times and their prompts.
//
// A prompt is a list of blocks, followed by the tokens of an incomplete block. A block has a name;
// the name stands for the block and all blocks before it. Equal names in two prompts mean an equal
// prefix.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvcast::simulate {

inline constexpr int64_t kNoRequest = -1;

struct WorkloadRequest {
  // Open loop: seconds since the start of the slice. Closed loop: seconds since the request `after`
  // ended.
  double delay_s = 0;
  // The position of the request that must end first. kNoRequest: none; the request is open loop.
  int64_t after = kNoRequest;
  // The conversation of the request. A request without a known conversation is a conversation of
  // its own.
  int64_t session = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 1;
  std::vector<uint64_t> blocks;  // the whole blocks of the prompt: prompt_tokens / block_tokens
  // The position of a later request whose prompt continues this prompt and its answer. The tokens
  // after the whole blocks, and the answer, are then the tokens of that prompt. kNoRequest: these
  // tokens occur in no other prompt.
  int64_t next = kNoRequest;
};

// One slice of a workload. Open-loop requests are ordered by time.
struct Slice {
  int64_t block_tokens = 0;
  std::vector<WorkloadRequest> requests;
};

struct Workload {
  std::string name;  // "agents", "shared", "chat", or the name of a trace file
  std::vector<Slice> slices;
  // Tokens that all caches of the fleet together hold, in sequences of average length.
  int64_t fleet_tokens = 0;
  // Work of the slice without any reuse, as a share of the fleet's capacity. The simulation
  // scales the arrival times of open-loop requests to this load. nullopt: the times stay as they
  // are.
  std::optional<double> load;
};

// Sets `next` and `session` of requests whose trace names no conversations. A request continues
// an earlier request if its prompt begins with all whole blocks of the earlier prompt, and is at
// least as long as the earlier prompt and its answer. If several requests can continue a request,
// the first of them continues it. Prompts with fewer than two whole blocks are not continued. A
// continued request and its continuation get the same session.
void LinkTurns(Slice& slice);

}  // namespace kvcast::simulate
