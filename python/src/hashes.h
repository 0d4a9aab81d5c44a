// BlockHashes: the block hashes of a prompt, as Python sees them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kvcast/hash/block_hash.h"

namespace kvcast::python {

// Immutable, so that several threads may read it.
struct BlockHashes {
  std::vector<uint64_t> integers;  // form "int"
  std::vector<uint8_t> digests;    // form "bytes": `width` bytes per hash
  size_t width = 0;                // 0: form "int"

  size_t size() const { return width == 0 ? integers.size() : digests.size() / width; }
};

struct HashOptions {
  int64_t block_size = 16;
  std::string algorithm = "sha256";
  std::string seed = std::string(kDefaultHashSeed);
  std::vector<uint8_t> none_hash;  // not empty: it replaces the seed
  HashInputs inputs;
  std::string extra_keys = "bare";
  int64_t lookahead = 0;
  std::string form = "int";
};

// Needs no GIL.
Result<BlockHashes> ComputeBlockHashes(std::span<const TokenId> tokens, const HashOptions& options);

// Reads the items of a prompt: tuples (identifier, offset, length).
std::vector<MultimodalItem> MultimodalItemsOf(pybind11::handle items);

}  // namespace kvcast::python
