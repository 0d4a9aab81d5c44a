// Conversations: prompts with shared prefixes, for a fleet of any size. A prompt consists of a
// system prompt, the text of a project, and the turns of one conversation. All workers hold all
// system prompts. Each project has two workers. Both workers hold the text of the project, and each
// worker holds half of the project's conversations. A block hash is computed from the kind and the
// number of the block, so the content of the fleet takes no memory.
//
// A wave has as many projects as there are workers. The steps of a wave are the turns of its
// conversations: the first turns of all conversations, then the second turns, and so on.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "apps/bench/index/churn.h"
#include "kvcast/core/ids.h"

namespace kvcast::bench {

class Conversations {
 public:
  static constexpr uint64_t kSystems = 16;         // system prompts
  static constexpr uint64_t kSystemBlocks = 64;    // blocks of a system prompt
  static constexpr uint64_t kProjectBlocks = 256;  // blocks of a project's text
  static constexpr uint64_t kPerProject = 4;       // conversations of a project
  static constexpr uint64_t kHolders = 2;          // workers of a project
  static constexpr uint64_t kTurns = 5;            // turns of a conversation
  static constexpr uint64_t kTurnBlocks = 61;
  static constexpr uint64_t kSharedBlocks = kSystemBlocks + kProjectBlocks;
  static constexpr uint64_t kPromptBlocks = kSharedBlocks + kTurns * kTurnBlocks;

  explicit Conversations(uint64_t workers) : workers_(workers) {}  // at least 2

  uint64_t workers() const { return workers_; }
  uint64_t conversations() const { return workers_ * kPerProject; }  // of a wave
  uint64_t steps() const { return kTurns * conversations(); }        // of a wave
  // (worker, block) pairs of the system prompts, and of a wave without the system prompts.
  uint64_t system_residencies() const { return kSystems * kSystemBlocks * workers_; }
  uint64_t wave_residencies() const {
    return workers_ * (kHolders * kProjectBlocks + kPerProject * kTurns * kTurnBlocks);
  }

  // Conversations have numbers from 0 on. The conversations of a wave have consecutive numbers.
  uint64_t ProjectOf(uint64_t conversation) const {
    return conversation / conversations() * workers_ + conversation % workers_;
  }
  uint64_t SystemOf(uint64_t project) const { return Mix64(project) % kSystems; }
  // The place of a conversation in its project, from 0 on. The first kHolders conversations have
  // different workers.
  uint64_t PlaceOf(uint64_t conversation) const {
    return conversation % conversations() / workers_;
  }
  WorkerId WorkerOf(uint64_t conversation) const;
  // The hash of the block at `position` of the conversation's prompt; position < kPromptBlocks.
  uint64_t HashOf(uint64_t conversation, uint64_t position) const;
  static uint64_t SystemHash(uint64_t system, uint64_t position);
  // The hash of a block that no worker holds. Different numbers give different hashes.
  static uint64_t UnheldHash(uint64_t number);

 private:
  uint64_t workers_;
};

}  // namespace kvcast::bench
