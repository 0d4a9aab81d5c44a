// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/content_key.h"

#include <xxhash.h>

#include <algorithm>

#include "router/names/prime_field.h"
#include "src/hash/seeded_hash.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define KVCAST_AVX2
#include <immintrin.h>
#endif

namespace kvcast {

using router::AddMod;
using router::Canonical;
using router::Fold;
using router::InverseMod;
using router::kFieldPrime;
using router::MultiplyMod;
using router::Wide;

namespace {

constexpr size_t kCell = ContentKeys::kCell;

enum TextKind : uint64_t { kLora, kSalt, kItem, kEmbeddings };

// Returns an element of the field other than 0 and 1, derived from the secret.
uint64_t Point(uint64_t secret, uint64_t number) {
  const uint64_t mixed = XXH3_64bits_withSeed(&number, sizeof(number), secret);
  return 2 + mixed % (kFieldPrime - 2);
}

bool IsNarrow(TokenId token) { return static_cast<uint64_t>(token) >> 32 == 0; }

// Returns the sum of token[i] * powers[n - 1 - i], folded, over n <= kCell tokens that fit 32 bits.
uint64_t SumOf(const TokenId* tokens, size_t n, const uint64_t* powers) {
  Wide sum = 0;
  for (size_t i = 0; i < n; ++i) {
    sum += Wide{powers[n - 1 - i]} * static_cast<uint32_t>(tokens[i]);
  }
  return Fold(sum);
}

bool AllNarrow(const TokenId* tokens, size_t n) {
  uint64_t bits = 0;
  for (size_t i = 0; i < n; ++i) bits |= static_cast<uint64_t>(tokens[i]);
  return bits >> 32 == 0;
}

}  // namespace

ContentKeys::ContentKeys(uint64_t secret) : secret_(secret) {
  uint64_t number = 0;
  const auto next = [&] { return Point(secret, number++); };
  root_ = next();
  const uint64_t point = next();
  powers_[0] = 1;
  for (size_t i = 1; i < kPowers; ++i) powers_[i] = MultiplyMod(powers_[i - 1], point);
  for (size_t i = 0; i < kCell; ++i) {
    lanes_.low[i] = powers_[kCell - 1 - i] & 0xFFFFFFFF;
    lanes_.high[i] = powers_[kCell - 1 - i] >> 32;
  }
  lanes_.of_cell = powers_[kCell];
  wide_ = next();
  narrow_ = next();
  for (uint64_t& text_point : text_points_) text_point = next();
  mark_ = next();
  unmark_ = InverseMod(mark_);
  unpoint_ = InverseMod(point);
  unwide_ = InverseMod(wide_);
  unnarrow_ = InverseMod(narrow_);
}

const ContentKeys& ContentKeys::OfProcess() {
  static const ContentKeys keys(router::ProcessSeed());
  return keys;
}

ContentKey ContentKeys::AddText(ContentKey prefix, std::string_view text, uint64_t kind) const {
  const XXH128_hash_t digest = XXH3_128bits_withSeed(text.data(), text.size(), secret_ + kind);
  const uint64_t point = text_points_[kind];
  const uint64_t first = Canonical(Fold(Wide{prefix} * point + digest.low64 % kFieldPrime));
  return Canonical(Fold(Wide{first} * point + digest.high64 % kFieldPrime));
}

ContentKey ContentKeys::Root(const ContentScope& scope) const {
  ContentKey key = root_;
  if (!scope.lora_name.empty()) key = AddText(key, scope.lora_name, kLora);
  if (!scope.cache_salt.empty()) key = AddText(key, scope.cache_salt, kSalt);
  return key;
}

ContentKey ContentKeys::AddItem(ContentKey prefix, std::string_view identifier) const {
  return AddText(prefix, identifier, kItem);
}

ContentKey ContentKeys::AddEmbeddings(ContentKey prefix, std::span<const uint8_t> digest) const {
  return AddText(prefix, {reinterpret_cast<const char*>(digest.data()), digest.size()},
                 kEmbeddings);
}

ContentKey ContentKeys::Extend(ContentKey prefix, TokenId token) const {
  const auto bits = static_cast<uint64_t>(token);
  if (IsNarrow(token)) return Canonical(Fold(Wide{prefix} * powers_[1] + bits));
  // The halves have points of their own, so that a wide token differs from a pair of narrow tokens.
  const uint64_t high = Canonical(Fold(Wide{prefix} * wide_ + (bits >> 32)));
  return Canonical(Fold(Wide{high} * narrow_ + (bits & 0xFFFFFFFF)));
}

ContentKey ContentKeys::Extend(ContentKey prefix, std::span<const TokenId> tokens) const {
  if (tokens.empty()) return prefix;
  ContentKey key = kUnnamed;
  ExtendBy(prefix, tokens, tokens.size(), {&key, 1});
  return key;
}

ContentKey ContentKeys::Retract(ContentKey key, std::span<const TokenId> tokens) const {
  const auto subtract = [](uint64_t from, uint64_t half) {
    return from >= half ? from - half : from + (kFieldPrime - half);
  };
  for (size_t i = tokens.size(); i-- > 0;) {
    const auto bits = static_cast<uint64_t>(tokens[i]);
    if (IsNarrow(tokens[i])) {
      key = MultiplyMod(subtract(key, bits), unpoint_);
      continue;
    }
    key = MultiplyMod(subtract(key, bits & 0xFFFFFFFF), unnarrow_);
    key = MultiplyMod(subtract(key, bits >> 32), unwide_);
  }
  return key;
}

void ContentKeys::ExtendByPortably(ContentKey prefix, std::span<const TokenId> tokens, size_t step,
                                   std::span<ContentKey> keys) const {
  const TokenId* next_token = tokens.data();
  uint64_t state = prefix;
  for (ContentKey& key : keys) {
    for (size_t left = step; left > 0;) {
      const size_t n = std::min(left, kCell);
      if (AllNarrow(next_token, n)) {
        state = Fold(Wide{state} * powers_[n] + SumOf(next_token, n, powers_.data()));
      } else {
        for (size_t i = 0; i < n; ++i) state = Extend(state, next_token[i]);
      }
      next_token += n;
      left -= n;
    }
    state = Canonical(state);
    key = state;
  }
}

#ifdef KVCAST_AVX2
namespace {

// Tokens of this many bits can be summed in 64-bit lanes: the sum of 16 products of 28 and 32 bits
// fits a lane.
constexpr int kLaneTokenBits = 28;

// Computes the sum of the cell's tokens, each times its power. The sum is less than 2^65. False: a
// token does not fit the lanes.
__attribute__((target("avx2"), always_inline)) inline bool SumCell(
    const TokenId* tokens, const ContentKeys::LanePowers& powers, Wide& sum) {
  const auto* const vectors = reinterpret_cast<const __m256i*>(tokens);
  const auto* const low = reinterpret_cast<const __m256i*>(powers.low.data());
  const auto* const high = reinterpret_cast<const __m256i*>(powers.high.data());
  __m256i low_sum = _mm256_setzero_si256();
  __m256i high_sum = _mm256_setzero_si256();
  __m256i bits = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) {
    const __m256i four = _mm256_loadu_si256(vectors + i);
    bits = _mm256_or_si256(bits, four);
    low_sum = _mm256_add_epi64(low_sum, _mm256_mul_epu32(four, _mm256_load_si256(low + i)));
    high_sum = _mm256_add_epi64(high_sum, _mm256_mul_epu32(four, _mm256_load_si256(high + i)));
  }
  const __m256i pairs = _mm256_add_epi64(_mm256_unpacklo_epi64(low_sum, high_sum),
                                         _mm256_unpackhi_epi64(low_sum, high_sum));
  const __m128i both =
      _mm_add_epi64(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  const auto low_half = static_cast<uint64_t>(_mm_cvtsi128_si64(both));
  const auto high_half = static_cast<uint64_t>(_mm_extract_epi64(both, 1));
  const Wide whole = (Wide{high_half} << 32) + low_half;
  sum = Wide{static_cast<uint64_t>(whole >> 64) * router::kFieldGap} + static_cast<uint64_t>(whole);
  return _mm256_testz_si256(bits, _mm256_set1_epi64x(-(int64_t{1} << kLaneTokenBits))) != 0;
}

// Writes to `ends` the keys of `prefix` followed by 1, 2, ... whole cells. Stops after `cells`
// keys, or before the first cell that does not fit the lanes. Returns the number of keys. The
// product and a sum less than 2^65 fit 128 bits together, because one factor of the product is
// below p.
__attribute__((target("avx2"))) size_t ExtendCells(const TokenId* tokens, size_t cells,
                                                   const ContentKeys::LanePowers& powers,
                                                   uint64_t prefix, uint64_t* ends) {
  for (size_t cell = 0; cell < cells; ++cell) {
    Wide sum;
    if (!SumCell(tokens + cell * kCell, powers, sum)) return cell;
    ends[cell] = prefix = Canonical(Fold(Wide{prefix} * powers.of_cell + sum));
  }
  return cells;
}

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") > 0;
  return has;
}

}  // namespace
#endif

std::string_view ContentKeys::Code() {
#ifdef KVCAST_AVX2
  if (HasAvx2()) return "avx2";
#endif
  return "portable";
}

void ContentKeys::ExtendBy(ContentKey prefix, std::span<const TokenId> tokens, size_t step,
                           std::span<ContentKey> keys) const {
#ifdef KVCAST_AVX2
  if (step % kCell == 0 && HasAvx2()) {
    constexpr size_t kBuffered = 64;  // cells
    std::array<ContentKey, kBuffered> ends;
    const TokenId* next_token = tokens.data();
    size_t key = 0;
    size_t into = 0;  // finished cells of the current step
    const size_t per_key = step / kCell;
    for (size_t left = keys.size() * per_key; left > 0;) {
      ContentKey* const out = per_key == 1 ? keys.data() + keys.size() - left : ends.data();
      const size_t most = per_key == 1 ? left : std::min(left, kBuffered);
      size_t done = ExtendCells(next_token, most, lanes_, prefix, out);
      if (done == 0) {
        // A token is too large for the lanes.
        ExtendByPortably(prefix, {next_token, kCell}, kCell, {out, 1});
        done = 1;
      }
      prefix = out[done - 1];
      if (per_key > 1) {
        for (size_t i = 0; i < done; ++i) {
          if (++into < per_key) continue;
          into = 0;
          keys[key++] = out[i];
        }
      }
      next_token += done * kCell;
      left -= done;
    }
    return;
  }
#endif
  ExtendByPortably(prefix, tokens, step, keys);
}

ContentKey ContentKeys::Mark(ContentKey prefix, int64_t lookahead) const {
  for (; lookahead > 0; --lookahead) prefix = MultiplyMod(prefix, mark_);
  return prefix;
}

ContentKey ContentKeys::Unmark(ContentKey name, int64_t lookahead) const {
  for (; lookahead > 0; --lookahead) name = MultiplyMod(name, unmark_);
  return name;
}

}  // namespace kvcast
