// ExtraKey: one element of a block's extra keys (LoRA name, multimodal item, salt, embedding
// digest).
//
// Extra keys enter the block hash (spec of vLLM's `generate_block_hash_extra_keys`) and travel in
// BlockStored.extra_keys, one list per block hash. The engine's Python types map one to one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace kvcast {

struct ExtraKey;

// A byte string, kept apart from text because both encodings tell them apart.
struct Bytes {
  std::string data;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

// A tuple or list, such as the pair (multimodal identifier, offset relative to the block start).
struct ExtraKeyList {
  std::vector<ExtraKey> items;
  friend bool operator==(const ExtraKeyList&, const ExtraKeyList&);
};

// nil, bool, integer (below 2^63), unsigned integer (2^63 and above), float, UTF-8 text, bytes, or
// list.
struct ExtraKey {
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Bytes, ExtraKeyList>
      value;

  static ExtraKey Text(std::string text) { return {std::move(text)}; }
  static ExtraKey Binary(std::string bytes) { return {Bytes{std::move(bytes)}}; }
  static ExtraKey Int(int64_t number) { return {number}; }
  // The multimodal pair.
  static ExtraKey Item(std::string identifier, int64_t offset) {
    return {ExtraKeyList{{Text(std::move(identifier)), Int(offset)}}};
  }
  friend bool operator==(const ExtraKey&, const ExtraKey&) = default;
};

inline bool operator==(const ExtraKeyList& a, const ExtraKeyList& b) { return a.items == b.items; }

// The extra keys of one block; empty means nil.
using ExtraKeys = std::vector<ExtraKey>;

}  // namespace kvcast
