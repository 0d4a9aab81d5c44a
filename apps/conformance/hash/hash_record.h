// One recorded prompt of a block-hash file: the inputs, and the hashes of the engine.
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
  // The seed text. nullopt if the engine ran without PYTHONHASHSEED.
  std::optional<std::string> seed;
  int64_t block_size = 0;
  std::vector<TokenId> tokens;
  HashInputs inputs;
  ChainForm form;

  // Recorded results. Byte strings are raw.
  std::string none_hash;
  std::vector<std::string> block_hashes;
  std::vector<uint64_t> int64;
  std::optional<std::vector<ExtraKeys>> extra_keys;        // as they were hashed
  std::optional<std::vector<ExtraKeys>> event_extra_keys;  // as they are in events
  std::optional<std::vector<std::vector<TokenId>>> lookahead_token_ids;
  std::optional<std::vector<std::string>> preimages;
  std::optional<std::string> none_hash_preimage;
};

// Parses one line of JSON. kMalformed: the line is not JSON, or a field is missing or of the wrong
// type.
Result<HashRecord> ParseHashRecord(std::string_view line);

// True: the line may be a record of this class. Used to select files.
bool LooksLikeHashRecord(std::string_view line);

}  // namespace kvcast::tools
