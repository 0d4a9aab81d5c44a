// Reads the long array of a query with simdjson, without a JSON document. A prompt is an array of
// thousands of integers; a query has only a few other members.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvcast/core/block_hash_value.h"

namespace kvcast::router {

struct NumberArray {
  std::string_view member;  // the name from `members` that the body contains
  std::vector<uint64_t> numbers;
  // The array has more than `most` elements. `numbers` then has the first `most` elements, and
  // `rest` is empty.
  bool too_long = false;
  // The body with an empty array in place of the numbers. `rest` is valid JSON if and only if the
  // body is valid JSON.
  std::string rest;
};

// Takes the array of numbers out of the body. The body must be a JSON object with exactly one of
// `members`. The value of this member must be a non-empty array of plain integers from 0 to
// UINT64_MAX. nullopt: the body has another form or is broken; the caller must parse the whole
// body.
std::optional<NumberArray> TakeNumberArray(std::string_view body,
                                           std::span<const std::string_view> members, size_t most);

struct HashArray {
  std::vector<BlockHash> hashes;
  bool too_long = false;
  std::string rest;
};

// As TakeNumberArray, for an array of hashes: positive or negative integers, or strings of hex
// digits.
std::optional<HashArray> TakeHashArray(std::string_view body, std::string_view member, size_t most);

}  // namespace kvcast::router
