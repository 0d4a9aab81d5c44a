// SPDX-License-Identifier: Apache-2.0
#include "kvcast/core/event_identity.h"

#include <bit>

// Inlined because most fields have only a few bytes.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvcast {
namespace {

// Folds values into one 64-bit state. The order of the values matters. A value of variable length
// also adds its length, so that no two sequences of fields give the same input.
class Fold {
 public:
  explicit Fold(uint64_t kind) : state_(kind * kOdd) {}

  uint64_t state() const { return state_; }

  void Add(uint64_t value) {
    // The product of 64 x 64 bits has 128 bits. Both halves are used, so one multiplication mixes
    // all bits.
    const auto product = static_cast<Wide>(state_ ^ kOdd) * (value ^ kOther);
    state_ = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^
             std::rotl(state_ + value, 29);
  }
  void Add(int64_t value) { Add(static_cast<uint64_t>(value)); }
  void Add(uint8_t value) { Add(uint64_t{value}); }
  void Add(bool value) { Add(uint64_t{value}); }
  void Add(double value) {
    // Equal numbers have equal bits, except for the two zeros.
    Add(std::bit_cast<uint64_t>(value == 0 ? 0.0 : value));
  }
  void Add(std::monostate) {}
  void Add(const std::string& text) { AddBytes(text.data(), text.size()); }
  void Add(const Bytes& bytes) { Add(bytes.data); }
  void Add(const std::vector<TokenId>& tokens) {
    AddBytes(tokens.data(), tokens.size() * sizeof(TokenId));
  }
  void Add(const BlockHash& hash) {
    Add(static_cast<uint64_t>(hash.form()));
    if (hash.is_bytes()) {
      AddBytes(hash.bytes().data(), hash.bytes().size());
    } else {
      Add(hash.integer());
    }
  }
  void Add(const ExtraKeyList& list) { Add(list.items); }
  void Add(const ExtraKey& key) {
    Add(static_cast<uint64_t>(key.value.index()));
    std::visit([this](const auto& value) { Add(value); }, key.value);
  }
  void Add(const LookaheadTokens& lookahead) {
    Add(lookahead.width);
    Add(lookahead.token_ids);
  }
  void Add(const std::pair<std::string, ExtraKey>& entry) {
    Add(entry.first);
    Add(entry.second);
  }
  template <typename T>
  void Add(const std::vector<T>& items) {
    Add(static_cast<uint64_t>(items.size()));
    for (const T& item : items) Add(item);
  }
  template <typename T>
  void Add(const std::optional<T>& field) {
    Add(field.has_value());
    if (field) Add(*field);
  }

 private:
  __extension__ using Wide = unsigned __int128;
  static constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;
  static constexpr uint64_t kOther = 0xD1B54A32D192ED03u;

  void AddBytes(const void* data, size_t size) {
    Add(static_cast<uint64_t>(size));
    Add(static_cast<uint64_t>(XXH3_64bits(data, size)));
  }

  uint64_t state_;
};

// One seed per type of event.
enum Kind : uint64_t { kStored = 1, kRemoved, kCleared };

template <typename... Fields>
size_t HashOf(Kind kind, const Fields&... fields) {
  Fold fold(kind);
  (fold.Add(fields), ...);
  return fold.state();
}

}  // namespace

// The structured bindings name every field. If an event gets a new field, this code does not
// compile until the hash covers the field.
size_t EventHash::operator()(const BlockStored& event) const noexcept {
  const auto& [hashes, parent, tokens, per_position, block_size, lora_id, medium, lora_name,
               extra_keys, group, kind, window, locality, ownership, session, salt, metadata,
               offset, lookahead] = event;
  return HashOf(kStored, hashes, parent, tokens, per_position, block_size, lora_id, medium,
                lora_name, extra_keys, group, kind, window, locality, ownership, session, salt,
                metadata, offset, lookahead);
}

size_t EventHash::operator()(const BlockRemoved& event) const noexcept {
  const auto& [hashes, medium, group, locality, ownership] = event;
  return HashOf(kRemoved, hashes, medium, group, locality, ownership);
}

size_t EventHash::operator()(const AllBlocksCleared& event) const noexcept {
  const auto& [medium] = event;
  return HashOf(kCleared, medium);
}

size_t EventHash::operator()(const Event& event) const noexcept {
  return std::visit([this](const auto& one) { return (*this)(one); }, event);
}

}  // namespace kvcast
