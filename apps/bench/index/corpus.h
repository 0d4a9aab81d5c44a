// Corpus: queries and events of a fleet, as a file that any index can be fed from. The format is
// described in bench/CORPUS.md.
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
// The end of the window, in the unit of CorpusRecord::due.
inline constexpr uint64_t kCorpusWindow = 1'000'000'000;

struct CorpusBlock {
  uint64_t local = 0;     // XXH3-64, seed 1337, of the block's token ids as 32-bit little-endian
  uint64_t sequence = 0;  // names the block and all before it; what engines would announce

  friend bool operator==(const CorpusBlock&, const CorpusBlock&) = default;
};

enum class CorpusOp : uint8_t { kQuery = 1, kStore = 2, kRemove = 3 };

struct CorpusRecord {
  uint64_t due = 0;  // from 0 to kCorpusWindow: the place in the window
  uint32_t worker = 0;
  CorpusOp op = CorpusOp::kQuery;
  uint64_t parent = 0;  // stores: sequence of the block before; 0: root
  // Queries: the prompt. Stores: neighbours. Removes: in order of eviction.
  std::vector<CorpusBlock> blocks;

  friend bool operator==(const CorpusRecord&, const CorpusRecord&) = default;
};

struct Corpus {
  uint32_t workers = 0;
  uint32_t block_tokens = 0;
  std::vector<CorpusRecord> records;  // by due

  uint64_t block_ops() const;
  friend bool operator==(const Corpus&, const Corpus&) = default;
};

// The file's bytes. The last 32 are the SHA-256 of those before.
std::vector<uint8_t> EncodeCorpus(const Corpus& corpus);
// Not ok: the message names what is wrong, and the record and the byte where it is.
Result<Corpus> DecodeCorpus(std::span<const uint8_t> bytes);
// The content hash at the end of an encoded corpus, as hex digits.
std::string CorpusHash(std::span<const uint8_t> encoded);

}  // namespace kvcast::bench
