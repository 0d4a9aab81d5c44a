// Makes a corpus from a request trace. A simple engine runs for each worker, in virtual time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "apps/bench/index/corpus.h"
#include "apps/support/trace.h"

namespace kvcast::bench {

struct CorpusConfig {
  int64_t workers = 128;
  int64_t copies = 20;           // copies of the trace, each with its own block ids
  int64_t block_tokens = 128;    // must divide 512
  int64_t pool_blocks = 16'384;  // pool of each engine
  uint64_t seed = 42;            // determines the worker of each request
};

// Each request goes to a random worker and begins with a query. The engine stores the new prompt
// blocks when they are computed, and the output blocks when they are full. When a request ends, the
// engine puts the blocks that no other request uses into an LRU list. It evicts the last block of a
// request first. The engine keeps one copy of each block. It announces a store when the block
// enters the pool, and a remove when it evicts the block. The times of each worker are scaled to
// the duration of the replay (kCorpusWindow). The result is deterministic.
Corpus MakeCorpus(const std::vector<tools::TraceRequest>& trace, const CorpusConfig& config);

}  // namespace kvcast::bench
