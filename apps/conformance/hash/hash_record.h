// One recorded prompt of a block-hash file: inputs, and what the engine made of them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/hash/block_hash.h"

namespace kvcast::tools {

struct HashRecord {
  std::string name;
  std::string algorithm;
  // The seed text. None where the engine ran without PYTHONHASHSEED.
  std::optional<std::string> seed;
  int64_t block_size = 0;
  std::vector<TokenId> tokens;
  HashInputs inputs;
  ChainForm form;

  // Recorded results, byte strings raw.
  std::string none_hash;
  std::vector<std::string> block_hashes;
  std::vector<uint64_t> int64;
  std::optional<std::vector<ExtraKeys>> extra_keys;        // as hashed
  std::optional<std::vector<ExtraKeys>> event_extra_keys;  // as events carry them
  std::optional<std::vector<std::vector<TokenId>>> lookahead_token_ids;
  std::optional<std::vector<std::string>> preimages;
  std::optional<std::string> none_hash_preimage;
};

// Parses one line of JSON. kMalformed: not JSON, a field is missing or of the wrong type.
Result<HashRecord> ParseHashRecord(std::string_view line);

// Whether a line looks like a record of this class, for telling files apart.
bool LooksLikeHashRecord(std::string_view line);

}  // namespace kvcast::tools
