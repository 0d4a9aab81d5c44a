// ExtraKey: one element of the extra keys of a block (LoRA name, multimodal item, salt, or
// embedding digest).
//
// The extra keys are part of the input of the block hash (source: vLLM's
// `generate_block_hash_extra_keys`). BlockStored.extra_keys carries one list per block hash. Each
// Python type that the engine uses maps to one alternative of ExtraKey. All types here are values
// that own their data.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace kvcast {

struct ExtraKey;

// A byte string. It is a separate type because pickle and CBOR encode bytes and text differently.
struct Bytes {
  std::string data;
  friend bool operator==(const Bytes&, const Bytes&) = default;
};

// A tuple or a list, for example the pair (multimodal identifier, offset relative to the start of
// the block).
struct ExtraKeyList {
  std::vector<ExtraKey> items;
  friend bool operator==(const ExtraKeyList&, const ExtraKeyList&);
};

// One of: nil, bool, integer (below 2^63), unsigned integer (2^63 and above), float, UTF-8 text,
// bytes, list.
struct ExtraKey {
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Bytes, ExtraKeyList>
      value;

  static ExtraKey Text(std::string text) { return {std::move(text)}; }
  static ExtraKey Binary(std::string bytes) { return {Bytes{std::move(bytes)}}; }
  static ExtraKey Int(int64_t number) { return {number}; }
  // The pair (identifier, offset) of a multimodal item.
  static ExtraKey Item(std::string identifier, int64_t offset) {
    return {ExtraKeyList{{Text(std::move(identifier)), Int(offset)}}};
  }
  friend bool operator==(const ExtraKey&, const ExtraKey&) = default;
};

inline bool operator==(const ExtraKeyList& a, const ExtraKeyList& b) { return a.items == b.items; }

// The extra keys of one block. An empty list means nil.
using ExtraKeys = std::vector<ExtraKey>;

}  // namespace kvcast
