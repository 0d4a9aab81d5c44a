// Corpus: the queries and events of a fleet, in a file format that any index can use as input.
// bench/CORPUS.md describes the format.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvcast/core/status.h"

namespace kvcast::bench {

inline constexpr uint32_t kCorpusVersion = 1;
inline constexpr uint32_t kMaxCorpusWorkers = 1 << 20;
// The duration of a replay (the window), in the unit of CorpusRecord::due: billionths of the
// window.
inline constexpr uint64_t kCorpusWindow = 1'000'000'000;

struct CorpusBlock {
  // XXH3-64 with seed 1337 of the token ids as 32-bit little-endian. If MakeCorpus has made the
  // corpus, a block of output tokens has a random number instead.
  uint64_t local = 0;
  // Identifies the block and all blocks before it. An engine would announce this hash.
  uint64_t sequence = 0;

  friend bool operator==(const CorpusBlock&, const CorpusBlock&) = default;
};

enum class CorpusOp : uint8_t { kQuery = 1, kStore = 2, kRemove = 3 };

struct CorpusRecord {
  uint64_t due = 0;     // time since the start of the replay, from 0 to kCorpusWindow
  uint32_t worker = 0;  // queries: the worker that serves the request
  CorpusOp op = CorpusOp::kQuery;
  uint64_t parent = 0;  // stores: sequence hash of the block before the first block; 0: root
  // Queries: the blocks of the prompt. Stores: consecutive blocks. Removes: the evicted blocks, in
  // the order of eviction.
  std::vector<CorpusBlock> blocks;

  friend bool operator==(const CorpusRecord&, const CorpusRecord&) = default;
};

struct Corpus {
  uint32_t workers = 0;
  uint32_t block_tokens = 0;
  std::vector<CorpusRecord> records;  // ordered by due

  // Sum of blocks over all records, queries included.
  uint64_t record_blocks() const;
  friend bool operator==(const Corpus&, const Corpus&) = default;
};

// Returns the file's bytes. The last 32 bytes are the SHA-256 of the bytes before.
std::vector<uint8_t> EncodeCorpus(const Corpus& corpus);
// Not ok: the message describes the error. For an error in a record, the message gives the index of
// the record and the byte offset in the file.
Result<Corpus> DecodeCorpus(std::span<const uint8_t> bytes);
// The content hash at the end of an encoded corpus, as hex digits.
std::string CorpusHash(std::span<const uint8_t> encoded);

}  // namespace kvcast::bench
