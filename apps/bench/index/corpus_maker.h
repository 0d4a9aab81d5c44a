// From a request trace to a corpus: a simple engine for each worker, in virtual time.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "apps/bench/index/corpus.h"
#include "apps/support/trace.h"

namespace kvcast::bench {

struct CorpusConfig {
  int64_t workers = 128;
  int64_t copies = 20;           // of the trace, each with block ids of its own
  int64_t block_tokens = 128;    // divides 512
  int64_t pool_blocks = 16'384;  // of each engine
  uint64_t seed = 42;            // which request goes to which worker
};

// Each request goes to some worker, asks there, has its new blocks stored when they are computed
// and its output's as they fill, and leaves its blocks to an LRU list, its tail to be evicted
// first. An engine speaks of a hash once: with the first copy, and when it is evicted. Each
// worker's times are stretched to the window. Deterministic.
Corpus MakeCorpus(const std::vector<tools::TraceRequest>& trace, const CorpusConfig& config);

}  // namespace kvcast::bench
