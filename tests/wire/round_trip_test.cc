// Encoding and decoding keeps every field that the dialect has.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "tests/support/kept_fields.h"
#include "tests/wire/support.h"

namespace kvcast::wire {
namespace {

class RandomBatch {
 public:
  explicit RandomBatch(uint64_t seed) : random_(seed) {}

  EventBatch Make() {
    EventBatch batch;
    batch.ts = static_cast<double>(Bits()) / 7;
    if (Chance()) batch.data_parallel_rank = Signed();
    for (uint64_t i = Below(6); i > 0; --i) batch.events.push_back(MakeEvent());
    return batch;
  }

 private:
  uint64_t Below(uint64_t bound) { return random_() % bound; }
  bool Chance() { return Below(2) == 0; }
  // Returns a number. Its length in bits is about uniform in 1 to 64.
  uint64_t Bits() { return random_() >> Below(64); }
  int64_t Signed() { return static_cast<int64_t>(Bits()); }
  int64_t NonNegative() { return static_cast<int64_t>(Bits() >> 1); }
  std::string Letters() { return std::string(Below(40), static_cast<char>('a' + Below(26))); }
  std::optional<std::string> MaybeText() {
    return Chance() ? std::optional(Letters()) : std::nullopt;
  }

  BlockHash Hash() {
    if (Chance()) return BlockHash::FromUnsigned(Bits());
    if (Chance()) return BlockHash::FromSigned(Signed());
    return BlockHash::FromBytes(Payload(Below(70), static_cast<uint8_t>(Below(256))));
  }

  std::vector<BlockHash> Hashes() {
    std::vector<BlockHash> hashes;
    for (uint64_t i = Below(40); i > 0; --i) hashes.push_back(Hash());
    return hashes;
  }

  ExtraKey Key(int depth) {
    switch (Below(depth > 0 ? 8 : 7)) {
      case 0:
        return {};
      case 1:
        return {Chance()};
      case 2:
        return ExtraKey::Int(Signed());
      case 3:
        return {uint64_t{1} << 63 | Bits()};
      case 4:
        return {static_cast<double>(Signed()) / 3};
      case 5:
        return ExtraKey::Text(Letters());
      case 6:
        return ExtraKey::Binary(Letters());
      default:
        return {ExtraKeyList{Keys(depth - 1)}};
    }
  }

  ExtraKeys Keys(int depth) {
    ExtraKeys keys;
    for (uint64_t i = Below(4); i > 0; --i) keys.push_back(Key(depth));
    return keys;
  }

  Event MakeEvent() {
    if (Below(5) == 0) return AllBlocksCleared{.medium = MaybeText()};
    if (Below(3) == 0) return Removed();
    return Stored();
  }

  BlockRemoved Removed() {
    BlockRemoved event;
    event.block_hashes = Hashes();
    event.medium = MaybeText();
    if (Chance()) event.group_idx = Signed();
    event.locality = MaybeText();
    event.ownership = MaybeText();
    return event;
  }

  void FillTokens(BlockStored& event) {
    if (Below(5) == 0) return;
    const uint64_t positions = Below(300);
    event.tokens_per_position = Below(4) == 0 && positions > 0 ? 2 : 1;
    event.token_ids.emplace();
    for (uint64_t i = positions * event.tokens_per_position; i > 0; --i) {
      event.token_ids->push_back(Below(10) == 0 ? Signed() : static_cast<int64_t>(Below(150000)));
    }
  }

  // Adds one token list for each hash. All lists have the same length.
  void FillLookahead(BlockStored& event) {
    LookaheadTokens& lookahead = event.lookahead.emplace();
    if (event.block_hashes.empty()) return;
    lookahead.width = static_cast<int64_t>(Below(4));
    for (uint64_t i = event.block_hashes.size() * static_cast<uint64_t>(lookahead.width); i > 0;
         --i) {
      lookahead.token_ids.push_back(Signed());
    }
  }

  BlockStored Stored() {
    BlockStored event;
    event.block_hashes = Hashes();
    if (Chance()) event.parent_block_hash = Hash();
    FillTokens(event);
    event.block_size = NonNegative();
    if (Chance()) event.lora_id = Signed();
    event.medium = MaybeText();
    event.lora_name = MaybeText();
    if (Chance()) {
      event.extra_keys.emplace();
      for (uint64_t i = Below(4); i > 0; --i) {
        event.extra_keys->push_back(Chance() ? std::optional(Keys(3)) : std::nullopt);
      }
    }
    if (Chance()) event.group_idx = Signed();
    event.kv_cache_spec_kind = MaybeText();
    if (Chance()) event.kv_cache_spec_sliding_window = NonNegative();
    event.locality = MaybeText();
    event.ownership = MaybeText();
    event.session_id = MaybeText();
    event.cache_salt = MaybeText();
    if (Chance()) FillLookahead(event);
    if (Chance()) event.token_offset = NonNegative();
    if (Chance()) event.metadata = {{Letters(), Key(3)}, {Letters(), Key(0)}};
    return event;
  }

  std::mt19937_64 random_;
};

TEST(RoundTrip, RandomBatchesInEveryDialect) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const EventBatch batch = RandomBatch(seed).Make();
    for (int i = 0; i <= static_cast<int>(Dialect::kKvcast1); ++i) {
      const auto dialect = static_cast<Dialect>(i);
      const Decoded decoded = Decode(Encode(batch, dialect));
      ASSERT_TRUE(decoded.status.ok()) << "seed " << seed << " " << DialectName(dialect);
      ASSERT_TRUE(SameBatch(decoded.batch, KeptFields(batch, dialect)))
          << "seed " << seed << " " << DialectName(dialect);
    }
  }
}

// The earlier contents of a batch object must not appear in its next contents.
TEST(RoundTrip, AReusedBatchEqualsAFreshOne) {
  EventBatch reused;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const Payload payload =
        Encode(RandomBatch(seed).Make(), static_cast<Dialect>(seed % kDialects));
    DecodeCounts counts;
    ASSERT_TRUE(DecodeBatch(payload, WireLimits(), reused, counts).ok());
    ASSERT_TRUE(SameBatch(reused, Decode(payload).batch)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace kvcast::wire
