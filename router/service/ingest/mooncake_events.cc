// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/mooncake_events.h"

#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvcast/core/tier.h"
#include "kvcast/router/prefix_index.h"
#include "src/hash/seeded_hash.h"
#include "src/wire/reader.h"

namespace kvcast::router {
namespace {

using wire::Kind;
using wire::Reader;
using wire::Value;

constexpr uint64_t kMaxEventTextBytes = 4096;
constexpr uint64_t kMaxEventHashBytes = 256;

// The known members of an event map; all are optional.
struct Fields {
  std::string_view event_type;
  std::string_view tenant_id;
  std::string_view backend_id;
  std::string_view object_key;
  std::string_view group_id;
  std::optional<std::string> medium;
  std::optional<std::string> lora_name;
  std::optional<std::string> salt;
  std::optional<BlockHash> parent;
  std::optional<int64_t> block_size;
  std::optional<int64_t> base_block_idx;
  std::vector<BlockHash> hashes;
  std::optional<std::vector<TokenId>> tokens;
};

std::optional<int64_t> IntegerOf(const Value& value) {
  if (value.kind != Kind::kUnsigned || value.number > INT64_MAX) return std::nullopt;
  return static_cast<int64_t>(value.number);
}

std::optional<BlockHash> HashOf(const Value& value) {
  if (value.kind == Kind::kUnsigned) return BlockHash::FromUnsigned(value.number);
  if (value.kind == Kind::kNegative) {
    return BlockHash::FromSigned(static_cast<int64_t>(value.number));
  }
  const bool is_content = value.kind == Kind::kBytes || value.kind == Kind::kText;
  if (!is_content || value.number == 0 || value.number > kMaxEventHashBytes) return std::nullopt;
  return BlockHash::FromBytes({value.data, static_cast<size_t>(value.number)});
}

// Nil counts as an empty text. False: another type, or a text that is too long.
bool TextOf(const Value& value, std::string_view& text) {
  text = {};
  if (value.kind == Kind::kNil) return true;
  if (value.kind != Kind::kText || value.number > kMaxEventTextBytes) return false;
  text = value.as_view();
  return true;
}
bool TextOf(const Value& value, std::optional<std::string>& text) {
  std::string_view view;
  if (!TextOf(value, view)) return false;
  if (!view.empty()) text = std::string(view);
  return true;
}
bool NumberOf(const Value& value, std::optional<int64_t>& number) {
  number = IntegerOf(value);
  return number.has_value() || value.kind == Kind::kNil;
}

std::optional<int64_t> GroupOf(std::string_view text) {
  int64_t group = 0;
  if (text.empty()) return group;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), group);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && group >= 0 && group < kMaxGroups ? std::optional(group) : std::nullopt;
}

bool AllMaps(Reader in, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    Kind kind;
    if (!in.PeekKind(kind) || kind != Kind::kMap || !in.Skip()) return false;
  }
  return true;
}

// Reads the fields of one event.
class MapReader {
 public:
  MapReader(Reader& in, const MooncakeConfig& config) : in_(in), config_(config) {}

  // Reads to the end of the map, whatever it contains. False: a field does not have its format.
  // REQUIRES: a well-formed map comes next.
  bool Read(Fields& fields) {
    Value head;
    bool good = in_.Next(head);
    for (uint64_t i = 0; i < head.number; ++i) {
      Value key;
      Reader at_key = in_;
      good &= at_key.Next(key) && in_.Skip();
      const Reader at_value = in_;
      good &= in_.Skip();
      if (key.kind == Kind::kText) good &= ReadField(key.as_view(), at_value, fields);
    }
    return good;
  }

 private:
  bool ReadField(std::string_view key, Reader in, Fields& fields) {
    if (key == "seq_hashes") return ReadHashes(in, fields.hashes);
    if (key == "token_ids") return ReadTokens(in, fields.tokens);
    Value value;
    if (!in.Next(value)) return false;
    if (key == "event_type") return TextOf(value, fields.event_type);
    if (key == "tenant_id") return TextOf(value, fields.tenant_id);
    if (key == "backend_id") return TextOf(value, fields.backend_id);
    if (key == "object_key") return TextOf(value, fields.object_key);
    if (key == "group_id") return TextOf(value, fields.group_id);
    if (key == "medium") return TextOf(value, fields.medium);
    if (key == "lora_name") return TextOf(value, fields.lora_name);
    if (key == "additional_salt") return TextOf(value, fields.salt);
    if (key == "block_size") return NumberOf(value, fields.block_size);
    if (key == "base_block_idx") return NumberOf(value, fields.base_block_idx);
    if (key != "parent_hash" || value.kind == Kind::kNil) return true;
    fields.parent = HashOf(value);
    return fields.parent.has_value();
  }

  bool ReadHashes(Reader& in, std::vector<BlockHash>& hashes) const {
    Value head;
    if (!in.Next(head) || head.kind != Kind::kArray || head.number > config_.hashes_max) {
      return false;
    }
    hashes.clear();
    for (uint64_t i = 0; i < head.number; ++i) {
      Value value;
      const auto hash = in.Next(value) ? HashOf(value) : std::nullopt;
      if (!hash) return false;
      hashes.push_back(*hash);
    }
    return true;
  }

  bool ReadTokens(Reader& in, std::optional<std::vector<TokenId>>& tokens) const {
    Value head;
    if (!in.Next(head)) return false;
    if (head.kind == Kind::kNil) return true;
    if (head.kind != Kind::kArray || head.number > config_.tokens_max) return false;
    tokens.emplace();
    for (uint64_t i = 0; i < head.number; ++i) {
      Value value;
      const auto token = in.Next(value) ? IntegerOf(value) : std::nullopt;
      if (!token) return false;
      tokens->push_back(*token);
    }
    return true;
  }

  Reader& in_;
  const MooncakeConfig& config_;
};

}  // namespace

class MooncakeEvents::Impl {
 public:
  explicit Impl(MooncakeConfig config) : config_(std::move(config)) {}

  Result<EventBatch> Decode(std::span<const uint8_t> payload);
  void Restart() {
    objects_.clear();
    object_hashes_ = 0;
  }

  MooncakeCounters counters;

 private:
  // An object that the events name by a key, and the tiers that hold it.
  struct Object {
    std::vector<BlockHash> hashes;
    int64_t group = 0;
    std::array<bool, kTiers> in_tier{};
  };

  // The objects by the hashes of their keys. Keys can be long, and are not shown.
  using Objects = absl::flat_hash_map<TextHash128, Object>;

  void Take(Fields fields, std::vector<Event>& out);
  void TakeBad(std::vector<Event>& out);
  // False: the event is left out.
  bool Stored(Fields& fields, int64_t group, std::vector<Event>& out);
  bool Removed(const Fields& fields, int64_t group, std::vector<Event>& out);
  // Adds `hashes` to the number of remembered hashes, and subtracts `freed`. False: the limit would
  // be exceeded. The number is then unchanged.
  bool TakeRoom(size_t hashes, size_t freed);
  void Forget(Object& object, std::vector<Event>& out);
  void ClearAll(std::vector<Event>& out);

  MooncakeConfig config_;
  Objects objects_;
  size_t object_hashes_ = 0;  // of all objects
  size_t cleared_end_ = 0;    // number of events of the batch up to the last clear of all tiers
  size_t batch_hashes_ = 0;   // of the batch, with the remembered hashes of removed objects
};

Result<EventBatch> MooncakeEvents::Impl::Decode(std::span<const uint8_t> payload) {
  const Status malformed(StatusCode::kMalformed, "not a batch of Mooncake events");
  const Status too_large(StatusCode::kLimit, "batch: too many hashes or tokens");
  if (payload.size() > config_.bytes_max)
    return Status(StatusCode::kLimit, "batch: longer than bytes_max");
  Reader whole(payload);
  if (Reader check = whole; !check.Skip() || !check.at_end()) return malformed;
  Value head;
  Value ts;
  Value events;
  if (!whole.Next(head) || head.kind != Kind::kArray || head.number < 2) return malformed;
  if (!whole.Next(ts) || !ts.is_integer()) return malformed;
  if (!whole.Next(events) || events.kind != Kind::kArray) return malformed;
  if (events.number > config_.batch_events_max)
    return Status(StatusCode::kLimit, "batch: more than batch_events_max events");
  if (!AllMaps(whole, events.number)) return malformed;
  EventBatch batch;
  cleared_end_ = 0;
  batch_hashes_ = 0;
  size_t tokens = 0;
  batch.ts = ts.as_double() / 1000;
  for (uint64_t i = 0; i < events.number; ++i) {
    Fields fields;
    const bool good = MapReader(whole, config_).Read(fields);
    batch_hashes_ += fields.hashes.size();
    tokens += fields.tokens ? fields.tokens->size() : 0;
    if (batch_hashes_ > config_.batch_hashes_max || tokens > config_.batch_tokens_max) {
      return too_large;
    }
    if (good) {
      Take(std::move(fields), batch.events);
    } else {
      TakeBad(batch.events);
    }
  }
  if (batch_hashes_ > config_.batch_hashes_max) return too_large;
  return batch;
}

// A bad event may have been a remove.
void MooncakeEvents::Impl::TakeBad(std::vector<Event>& out) {
  ++counters.bad_events;
  ClearAll(out);
}

void MooncakeEvents::Impl::Take(Fields fields, std::vector<Event>& out) {
  const auto group = GroupOf(fields.group_id);
  if (!group || fields.event_type.empty()) return TakeBad(out);
  const bool other_backend = !config_.backend_id.empty() && fields.backend_id != config_.backend_id;
  if (fields.tenant_id != config_.tenant_id || other_backend) {
    ++counters.others;
    return;
  }
  if (fields.event_type == "stored") {
    if (!Stored(fields, *group, out)) return;
  } else if (fields.event_type == "removed") {
    if (!Removed(fields, *group, out)) return;
  } else if (fields.event_type == "cleared") {
    ClearAll(out);
  } else {
    ++counters.unknown_types;
    return;
  }
  ++counters.events;
}

bool MooncakeEvents::Impl::Stored(Fields& fields, int64_t group, std::vector<Event>& out) {
  if (fields.hashes.empty() || !fields.medium) {
    ++counters.opaque;
    return false;
  }
  if (!fields.object_key.empty()) {
    const TextHash128 key = HashText128(fields.object_key);
    auto known = objects_.find(key);
    const size_t before = known == objects_.end() ? 0 : known->second.hashes.size();
    if ((known == objects_.end() && objects_.size() >= config_.objects_max) ||
        !TakeRoom(fields.hashes.size(), before)) {
      ++counters.refused;
      if (known != objects_.end()) {  // Mooncake has replaced the object's old blocks
        Forget(known->second, out);
        object_hashes_ -= before;
        objects_.erase(known);
      }
      return false;
    }
    if (known == objects_.end()) known = objects_.try_emplace(key).first;
    Object& object = known->second;
    if (object.hashes != fields.hashes || object.group != group) Forget(object, out);
    object.hashes = fields.hashes;
    object.group = group;
    bool& in_tier = object.in_tier[static_cast<size_t>(TierOf(fields.medium))];
    if (std::exchange(in_tier, true)) return true;
  }
  BlockStored store;
  store.block_hashes = std::move(fields.hashes);
  store.parent_block_hash = std::move(fields.parent);
  store.token_ids = std::move(fields.tokens);
  store.block_size = fields.block_size.value_or(0);
  store.medium = std::move(fields.medium);
  store.lora_name = std::move(fields.lora_name);
  store.cache_salt = std::move(fields.salt);
  store.group_idx = group;
  if (fields.base_block_idx && *fields.base_block_idx < (int64_t{1} << 32) &&
      store.block_size <= kMaxBlockSize) {
    store.token_offset = *fields.base_block_idx * store.block_size;
  }
  out.emplace_back(std::move(store));
  return true;
}

bool MooncakeEvents::Impl::TakeRoom(size_t hashes, size_t freed) {
  const size_t held = object_hashes_ - freed + hashes;
  if (hashes > freed && held > config_.object_hashes_max) return false;
  object_hashes_ = held;
  return true;
}

// Removes the object's old blocks, because the object has new content or another group.
void MooncakeEvents::Impl::Forget(Object& object, std::vector<Event>& out) {
  constexpr std::array kMedia = {kMediumGpu, kMediumCpu, kMediumStorage};
  for (size_t tier = 0; tier < object.in_tier.size(); ++tier) {
    if (!std::exchange(object.in_tier[tier], false)) continue;
    BlockRemoved removed;
    removed.block_hashes = object.hashes;
    batch_hashes_ += object.hashes.size();
    removed.medium = kMedia[tier];
    removed.group_idx = object.group;
    out.emplace_back(std::move(removed));
  }
}

bool MooncakeEvents::Impl::Removed(const Fields& fields, int64_t group, std::vector<Event>& out) {
  if (!fields.medium) {
    ++counters.opaque;
    return false;
  }
  BlockRemoved removed;
  removed.block_hashes = fields.hashes;
  removed.medium = fields.medium;
  removed.group_idx = group;
  if (const auto it = objects_.find(HashText128(fields.object_key)); it != objects_.end()) {
    Object& object = it->second;
    const bool held =
        std::exchange(object.in_tier[static_cast<size_t>(TierOf(fields.medium))], false);
    // If the object is already removed from this tier, a repeated remove must not emit all hashes
    // of the object again.
    if (!held && fields.hashes.empty()) return true;
    if (removed.block_hashes.empty()) {
      removed.block_hashes = object.hashes;
      batch_hashes_ += object.hashes.size();
    }
    removed.group_idx = object.group;
    if (object.in_tier == std::array<bool, kTiers>{}) {
      object_hashes_ -= object.hashes.size();
      objects_.erase(it);
    }
  }
  if (removed.block_hashes.empty()) {
    ++counters.opaque;
    return false;
  }
  out.emplace_back(std::move(removed));
  return true;
}

void MooncakeEvents::Impl::ClearAll(std::vector<Event>& out) {
  Restart();
  // A second clear of the same state would have no effect.
  if (cleared_end_ > 0 && cleared_end_ == out.size()) return;
  for (const char* medium : {kMediumGpu, kMediumCpu, kMediumStorage}) {
    out.emplace_back(AllBlocksCleared{.medium = medium});
  }
  cleared_end_ = out.size();
}

MooncakeEvents::MooncakeEvents(MooncakeConfig config)
    : impl_(std::make_unique<Impl>(std::move(config))) {}
MooncakeEvents::~MooncakeEvents() = default;
MooncakeEvents::MooncakeEvents(MooncakeEvents&&) noexcept = default;
MooncakeEvents& MooncakeEvents::operator=(MooncakeEvents&&) noexcept = default;

Result<EventBatch> MooncakeEvents::Decode(std::span<const uint8_t> payload) {
  return impl_->Decode(payload);
}
void MooncakeEvents::Restart() { impl_->Restart(); }
MooncakeCounters MooncakeEvents::counters() const { return impl_->counters; }

}  // namespace kvcast::router
