// ConversationBatches: the event batches of the engines that hold Conversations. All calls use the
// same two batches, so the memory of the events does not grow. A returned batch is valid until the
// next call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "apps/bench/growth/conversations.h"
#include "apps/bench/index/corpus_events.h"

namespace kvcast::bench {

class ConversationBatches {
 public:
  explicit ConversationBatches(const Conversations& content);

  // The worker stores a system prompt.
  const WorkerBatch& StoreSystem(WorkerId worker, uint64_t system);
  // Step `step` of a wave: the worker stores the new blocks of one turn. The first turn on a worker
  // contains the text of the project.
  const WorkerBatch& Store(uint64_t wave, uint64_t step);
  // The worker evicts the blocks that one step has stored, the last block first. The steps of a
  // wave evict all blocks of the wave, the last turns first. The last conversation of a project on
  // a worker evicts the text of the project too.
  const WorkerBatch& Evict(uint64_t wave, uint64_t step);
  // The worker stores the prompt of a conversation without its system prompt. REQUIRES: the worker
  // holds the system prompts.
  const WorkerBatch& StoreCopy(WorkerId worker, uint64_t conversation);

 private:
  struct Blocks {
    uint64_t conversation;
    uint64_t begin;  // position in the prompt
    uint64_t end;
  };
  // The blocks of a turn. `with_project`: also the text of the project, which precedes the turn.
  static Blocks BlocksOf(uint64_t conversation, uint64_t turn, bool with_project);
  const WorkerBatch& StoreBlocks(WorkerId worker, const Blocks& blocks);
  void SetBlock(uint64_t at, uint64_t hash);

  const Conversations& content_;
  WorkerBatch stored_;
  WorkerBatch evicted_;
};

}  // namespace kvcast::bench
