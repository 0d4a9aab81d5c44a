// Wire codec: converts MessagePack batches of all known dialects to and from the structs of
// event.h. A dialect is the layout of the events of one generation of an engine.
//
// Decoding follows schemas/README.md. The decoder does not need to know the dialect. It reads maps
// by key, and arrays by position. In an array, the type of a value shows its meaning if vLLM and
// SGLang use the position differently. The decoder skips unknown map keys and trailing array
// elements. If the decoder cannot decode an event, it counts the event by reason and skips it. It
// still decodes the other events of the batch.
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

// Limits of one batch. If a batch exceeds a limit of the batch, the decoder rejects the batch. If
// an event exceeds a limit of one event, the decoder rejects the event. It never truncates input.
struct WireLimits {
  size_t max_frame_bytes = 64u << 20;
  // A batch holds the events of one engine step, with one remove event per evicted block. A step of
  // 8,192 tokens can evict 2,048 blocks of 4 tokens in each group. With a few groups, the
  // batch has more than 10,000 events.
  uint32_t max_events = 65536;
  uint32_t max_hashes = 65536;    // per event
  uint32_t max_hash_bytes = 256;  // known producers send up to 256 bytes
  // Per event: token ids and lookahead tokens together. A pair of token ids counts as two.
  uint32_t max_tokens = 1u << 20;
  // Per event: entries of extra_keys, items of these entries, and pairs of metadata together.
  uint32_t max_extra_keys = 1u << 18;
  // Maximum nesting of arrays and maps. The batch itself has depth 1. Values above 64 count as 64.
  uint32_t max_depth = 8;
  uint32_t max_string_bytes = 1024;  // media, names, kinds, extra keys, metadata
  // Limits on the sums over all events of a batch. They bound the memory of the decoded batch,
  // because a value of one byte on the wire needs more bytes after decoding.
  uint64_t max_batch_hashes = 1u << 20;
  uint64_t max_batch_tokens = 8u << 20;
  uint64_t max_batch_extra_keys = 1u << 21;
};

// The reason why an event was not decoded.
enum class Reject : uint8_t {
  kUnknownEvent,  // the tag is not the tag of a known event
  // The event is neither an array nor a map, or has no tag.
  kNoTag,
  kMissingField,  // a required field is absent
  kBadType,       // the type of a field does not fit its meaning
  // The type is valid, but the value is out of range or not UTF-8.
  kBadValue,
  kDuplicateKey,  // a map has a known key twice
  kLimit,         // a limit of WireLimits for one event was exceeded
};
inline constexpr size_t kRejectReasons = 7;
std::string_view RejectName(Reject reason);

// Counters of the decoder.
struct DecodeCounts {
  uint64_t decoded = 0;  // events, including events that were merged into another one
  std::array<uint64_t, kRejectReasons> rejected{};
  uint64_t unknown_fields = 0;  // skipped map keys and array elements
  // BlockStored maps of fewer than 16 pairs with a 16-bit header, and without skipped_fields. From
  // 0.33 on, vLLM sends all stores in this form. Older releases send no store in this form.
  // (msgspec selects the header by the number of declared fields.)
  uint64_t wide_stores = 0;
  // Unknown fields of maps whose keys begin with `skipped_`. Forks of older vLLM releases declare
  // these fields of BlockStored, and send them in stores that leave out blocks. All stores of such
  // a fork have 16-bit headers.
  uint64_t skipped_fields = 0;
  // Unknown fields that list the components of a block that SGLang holds (full, swa, mamba). SGLang
  // sends these fields for hybrid models if an option is on. The decoded event does not contain
  // them, so it does not show which parts of the block SGLang holds.
  uint64_t component_fields = 0;

  uint64_t rejected_total() const {
    uint64_t total = 0;
    for (uint64_t n : rejected) total += n;
    return total;
  }
};

// Options that reduce the output of the decoder. They do not change the counters. They do not
// change which input the decoder accepts.
struct DecodeOptions {
  // False: the decoder checks the token ids but does not return their values. token_ids and
  // lookahead then have as many elements as with token ids, and all elements are 0.
  bool token_ids = true;
  // True: adjacent removes of the batch that differ only in their hashes become one event with all
  // hashes, in order. vLLM sends one event per evicted block.
  bool merge_removes = false;
};

// Decodes one payload into `batch`. The old content of `batch` is replaced, and its memory is
// reused. `counts` is increased, never reset.
//
// Ok: every event of the payload is either in `batch`, or counted in `counts.rejected`. Errors:
// kMalformed if the payload is not MessagePack, is truncated, has extra bytes at the end, or is not
// a batch; kLimit if it exceeds a limit of the batch. After an error, `batch` is empty, and
// `counts` is unchanged.
//
// Cost: one pass. A length field of the input alone never determines the size of an allocation.
// Thread-safe.
Status DecodeBatch(std::span<const uint8_t> payload, const WireLimits& limits, EventBatch& batch,
                   DecodeCounts& counts);
Status DecodeBatch(std::span<const uint8_t> payload, const WireLimits& limits,
                   const DecodeOptions& options, EventBatch& batch, DecodeCounts& counts);

// The known dialects; see schemas/README.md for their producers and fields.
enum class Dialect : uint8_t {
  kVllm1,
  kVllm2,
  kVllm3,
  kVllm4,
  kVllm5,
  kVllm6,
  kVllm7,
  kVllm8,  // kVllm1 to kVllm8: positional arrays
  kVllm9,
  kVllm10,
  kVllm11,
  kVllm12,  // kVllm9 to kVllm12: maps
  kSglang1,
  kSglang2,
  kSglang3,
  kSglang4,  // kSglang1 to kSglang4: positional arrays
  kSglang5,  // map
  // Maps: as vllm-12, with token_offset in stores and medium in clears.
  kKvcast1,
};
// The default of publishers and of the command line: the dialect of vLLM 0.33. It matches the
// default of CacheConfig::rules. A store in this dialect proves release 0.33 to a router. An engine
// with older rules must therefore publish in the dialect of its release.
inline constexpr Dialect kDefaultDialect = Dialect::kVllm12;

// Name and parser: "vllm-1" ... "vllm-12", "sglang-1" ... "sglang-5", "kvcast-1". ParseDialect also
// accepts "map" (kDefaultDialect), "positional" (vllm-8) and "sglang" (sglang-3), and returns
// nullopt for any other name.
std::string_view DialectName(Dialect dialect);
std::optional<Dialect> ParseDialect(std::string_view name);

// Appends the payload of `batch` to `out`. The payload is equal, byte for byte, to the output of
// the producer's encoder. Fields that the dialect does not have are omitted. Thread-safe. Error:
// kInvalidArgument, without output, if the batch contains a value that no decoder accepts:
// - text that is not UTF-8
// - a negative block size, window or token offset
// - tokens_per_position other than 1 or 2
// - tokens_per_position 2 without token ids
// - a number of token ids that is not a multiple of tokens_per_position
// - a number of lookahead tokens that is not `width` times the number of block hashes
// - lists that are nested too deep
// - a length of 2^32 or more
Status EncodeBatch(const EventBatch& batch, Dialect dialect, std::vector<uint8_t>& out);

}  // namespace kvcast
