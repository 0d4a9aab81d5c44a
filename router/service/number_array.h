// The long array of a query, read without a JSON document: a prompt is thousands of integers, and
// what is around them a few members.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/block_hash_value.h"

namespace kvcast::router {

struct NumberArray {
  std::string_view member;  // which of those asked for
  std::vector<uint64_t> numbers;
  bool too_long = false;  // more than the most; nothing else of it holds then
  // The body with nothing between the array's brackets: JSON if and only if the body is.
  std::string rest;
};

// Takes the array out of a body that is a JSON object with just one of `members`, a non-empty array
// of plain integers from 0 to UINT64_MAX, as far as can be told without parsing the rest. nullopt:
// the body is something else, or broken; it must be read as a whole.
std::optional<NumberArray> TakeNumberArray(std::string_view body,
                                           std::span<const std::string_view> members, size_t most);

struct HashArray {
  std::vector<BlockHash> hashes;
  bool too_long = false;
  std::string rest;
};

// The same for an array of hashes, integers of either sign or strings of hex digits.
std::optional<HashArray> TakeHashArray(std::string_view body, std::string_view member, size_t most);

}  // namespace kvcast::router
