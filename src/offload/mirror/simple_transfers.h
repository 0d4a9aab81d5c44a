// The operations of a SimpleOffload that are in progress: waiting matches, loads, stores.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/ids.h"
#include "kvcast/engine/gpu_block_pool.h"
#include "kvcast/offload/offload_manager.h"

namespace kvcast::offload {

inline OffloadKey KeyOf(const BlockContent& content) { return {content.digest, content.group}; }

// A hit whose blocks are kept for the request.
struct MatchPin {
  int64_t local_tokens = 0;
  int64_t tokens = 0;
  // Host blocks, by group, and by position after local_tokens.
  std::vector<std::vector<BlockId>> blocks;
};

struct BlockCopyPair {
  BlockId gpu;
  BlockId cpu;
  BlockContent content;
};

struct Load {
  std::vector<BlockCopyPair> copies;
  std::optional<int64_t> event;  // set when BuildStep returns the load
  bool abandoned = false;        // Reset was called during the load
  bool given_up = false;         // GiveUpLoad was called
};

struct Store {
  std::vector<BlockCopyPair> copies;
  std::vector<BlockStored> events;    // sent when the store has ended
  std::vector<std::string> requests;  // requests that the store serves; empty if abandoned
  int64_t workers_left = 0;
  bool failed = false;
  bool abandoned = false;  // Reset was called during the store
};

// The position up to which the blocks of a request have been examined.
struct StoreProgress {
  std::vector<int64_t> cursors;  // by group
  int64_t stores = 0;            // number of stores in progress
  bool finished = false;
};

// A GPU block that could be stored.
struct StoreCandidate {
  BlockId gpu;
  BlockContent content;
  int64_t index = 0;  // in the block table
};

}  // namespace kvcast::offload
