// The event load for measurements of a router: engines that store and remove blocks of known
// prompts at a fixed rate, over TCP.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/support/forked_process.h"
#include "kvcast/hash/block_hash.h"
#include "kvcast/stream/publisher.h"

namespace kvcast::tools {

inline constexpr int64_t kLoadBlockSize = 16;

struct EventLoadConfig {
  int workers = 8;
  double block_ops_per_s = 100'000;  // of all workers together; half are stores, half are removes
  int blocks_per_store = 16;
  int prompts = 128;
  int blocks_per_prompt = 625;
  // Number of prompts that each worker holds. A worker that stores a new prompt removes its oldest
  // prompt.
  int prompts_held = 64;
};

// A prompt and its hash chain by vLLM's default scheme.
struct LoadPrompt {
  std::vector<TokenId> tokens;
  std::vector<uint64_t> hashes;
};
std::vector<LoadPrompt> MakeLoadPrompts(const EventLoadConfig& config);

struct LoadEndpoints {
  std::array<char, 64> endpoint{};
  std::array<char, 64> replay{};
};

LoadEndpoints EndpointsOf(const Publisher& publisher);

// The batches that a publisher process has published since its start, and the block operations of
// these batches. A block operation stores or removes one block.
struct LoadCount {
  uint64_t block_ops = 0;
  uint64_t batches = 0;
};

// Runs the publisher process. Writes a LoadEndpoints for each worker to `out`, waits for a byte on
// `in`, and fills the workers. Then writes a LoadCount to `out`, and publishes at the configured
// rate. Answers each further byte with a LoadCount. Ends when `in` is closed. Returns the exit
// code.
int PublishLoad(const EventLoadConfig& config, const std::vector<LoadPrompt>& prompts,
                const PipeEnd& in, const PipeEnd& out);

}  // namespace kvcast::tools
