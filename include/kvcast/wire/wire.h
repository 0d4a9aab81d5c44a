// Wire codec: MessagePack batches of every known producer generation to and from event.h.
//
// Decoding follows schemas/README.md: the dialect is recognised event by event (map or array, by
// element count), unknown map keys and trailing array elements are skipped, and an event that
// cannot be decoded is counted by reason and skipped without costing its neighbours.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kvcast/core/event.h"
#include "kvcast/core/status.h"

namespace kvcast {

// Bounds on one batch. Input that passes one is rejected (the batch, or the event), never
// truncated.
struct WireLimits {
  size_t max_frame_bytes = 64u << 20;
  // A batch is one engine step, and a pool removes one block an event: 8,192 tokens in blocks of 4
  // and a handful of groups make more than 10,000.
  uint32_t max_events = 65536;
  uint32_t max_hashes = 65536;         // an event
  uint32_t max_hash_bytes = 256;       // real producers send up to 256 bytes
  uint32_t max_tokens = 1u << 20;      // an event, pairs counted as two, lookahead included
  uint32_t max_extra_keys = 1u << 18;  // an event: entries, items of entries, metadata pairs
  uint32_t max_depth = 8;              // nesting, the batch being 1; never more than 64
  uint32_t max_string_bytes = 1024;    // tags, media, names, extra keys
  // Sums over the batch, so that one-byte wire values cannot blow up into large ones.
  uint64_t max_batch_hashes = 1u << 20;
  uint64_t max_batch_tokens = 8u << 20;
  uint64_t max_batch_extra_keys = 1u << 21;
};

// Why an event was not decoded.
enum class Reject : uint8_t {
  kUnknownEvent,  // tag of no known event
  kNoTag,         // neither array nor map, or no tag in it
  kMissingField,  // a required field is absent
  kBadType,       // a field has a type that its meaning does not allow
  kBadValue,      // type right, value out of range or not UTF-8
  kDuplicateKey,  // a map names a known key twice
  kLimit,         // a named limit was passed
};
inline constexpr size_t kRejectReasons = 7;
std::string_view RejectName(Reject reason);

// What happened while one batch was decoded.
struct DecodeCounts {
  uint64_t decoded = 0;  // events, those that were merged with another one included
  std::array<uint64_t, kRejectReasons> rejected{};
  uint64_t unknown_fields = 0;  // map keys and array elements that were skipped
  // BlockStored maps of fewer than 16 pairs with a 16-bit header. vLLM writes all of its stores so
  // from 0.33 on, and none before (msgspec chooses the header by the fields that are declared).
  uint64_t wide_stores = 0;
  // Of unknown_fields, those that name the components of a block (full, swa, mamba) that are held,
  // as SGLang's hybrids do if told to: what the event says of the block is not all that was sent.
  uint64_t component_fields = 0;

  uint64_t rejected_total() const {
    uint64_t total = 0;
    for (uint64_t n : rejected) total += n;
    return total;
  }
};

// What the reader of a batch does without. What is valid does not depend on it, nor do the counts.
struct DecodeOptions {
  // False: token ids are passed over. token_ids and lookahead then have as many elements as were
  // sent, all 0.
  bool token_ids = true;
  // True: removes that follow each other in the batch and differ in nothing but their hashes become
  // one event with all of these, in order. vLLM sends an event for each block that it evicts.
  bool merge_removes = false;
};

// Decodes one payload into `batch` (replaced; its memory is used again). Not ok: the payload is not
// MessagePack, is cut short, has bytes left over, is not a batch, or passes a batch-wide limit;
// `batch` is then empty and `counts` as before. Ok: every event of the payload is either in `batch`
// or counted in `counts` (added to, never reset). Cost: one pass, no allocation on the word of a
// length field. Thread-safe.
Status DecodeBatch(std::span<const uint8_t> payload, const WireLimits& limits, EventBatch& batch,
                   DecodeCounts& counts);
Status DecodeBatch(std::span<const uint8_t> payload, const WireLimits& limits,
                   const DecodeOptions& options, EventBatch& batch, DecodeCounts& counts);

// The layouts that producers have used; see schemas/README.md for their fields.
enum class Dialect : uint8_t {
  kVllm1,
  kVllm2,
  kVllm3,
  kVllm4,
  kVllm5,
  kVllm6,
  kVllm7,
  kVllm8,  // positional arrays
  kVllm9,
  kVllm10,
  kVllm11,
  kVllm12,  // maps
  kSglang1,
  kSglang2,
  kSglang3,
  kSglang4,  // positional arrays
  kSglang5,  // maps
  // Maps: vllm-12, with token_offset of stores and medium of clears.
  kKvcast1,
};
// The default of publishers, of the command line and of CacheConfig's rules: vLLM 0.33. Its stores
// prove that release to a router, so an engine of older rules publishes in its own layout.
inline constexpr Dialect kDefaultDialect = Dialect::kVllm12;

// "vllm-1" ... "vllm-12", "sglang-1" ... "sglang-5", "kvcast-1"; "map" is kDefaultDialect,
// "positional" is vllm-8, "sglang" is sglang-3.
std::string_view DialectName(Dialect dialect);
std::optional<Dialect> ParseDialect(std::string_view name);

// Appends the payload of `batch` to `out`, byte-equal to what that producer's encoder writes.
// Fields that the dialect does not have are left out. Not ok (nothing appended): the batch holds
// what no decoder would take back: text that is not UTF-8, a negative block size or window, tokens
// that do not fill their positions or blocks, or a length of 2^32 and more. Thread-safe.
Status EncodeBatch(const EventBatch& batch, Dialect dialect, std::vector<uint8_t>& out);

}  // namespace kvcast
