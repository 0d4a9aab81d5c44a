// The bytes that are digested: the seed text of NONE_HASH, and (parent, tokens, extra keys).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kvcast/block_hash.h"
#include "src/hash/byte_buffer.h"

namespace kvcast::internal {

enum class Serialisation : uint8_t { kPickle, kCbor };

// Replaces the content of `out`.
void WriteSeedPreimage(Serialisation form, std::string_view seed, ByteBuffer& out);

// Replaces the content of `out`; returns where in it the part after the tokens starts.
size_t WriteBlockPreimage(Serialisation form, std::span<const uint8_t> parent,
                          std::span<const TokenId> tokens, const ExtraKeys& extra,
                          std::span<const uint32_t> object_tags, ByteBuffer& out);

}  // namespace kvcast::internal
