// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/oracle.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace kvcast::oracle {
namespace {

using Object = msgpack::object;

std::string TextOf(const Object& o) { return {o.via.str.ptr, o.via.str.size}; }
std::string BytesOf(const Object& o) { return {o.via.bin.ptr, o.via.bin.size}; }

// Refuses cut or overlong encodings, surrogates, and code points above U+10FFFF.
bool ValidUtf8(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int extra = lead < 0x80       ? 0
                      : lead >> 5 == 6  ? 1
                      : lead >> 4 == 14 ? 2
                      : lead >> 3 == 30 ? 3
                                        : -1;
    if (extra < 0 || i + static_cast<size_t>(extra) >= text.size()) return false;
    uint32_t point = extra == 0 ? lead : lead & (0x3fu >> extra);
    for (int k = 1; k <= extra; ++k) {
      const auto next = static_cast<unsigned char>(text[i + static_cast<size_t>(k)]);
      if (next >> 6 != 2) return false;
      point = point << 6 | (next & 0x3f);
    }
    const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
    if (point < least[extra] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
      return false;
    i += static_cast<size_t>(extra) + 1;
  }
  return true;
}

// The functions of this file throw Rejected to reject the event.
struct Rejected {};
void Require(bool condition) {
  if (!condition) throw Rejected();
}

class EventReader {
 public:
  explicit EventReader(const WireLimits& limits) : limits_(limits) {}

  BlockHash Hash(const Object& o) const {
    if (IsUnsigned(o)) return BlockHash::FromUnsigned(o.via.u64);
    if (IsNegative(o)) return BlockHash::FromSigned(o.via.i64);
    Require(IsText(o) || o.type == msgpack::type::BIN);
    const std::string bytes = IsText(o) ? TextOf(o) : BytesOf(o);
    Require(bytes.size() <= limits_.max_hash_bytes);
    return BlockHash::FromBytes({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
  }
  std::vector<BlockHash> Hashes(const Object& o) const {
    Require(IsArray(o) && o.via.array.size <= limits_.max_hashes);
    std::vector<BlockHash> hashes;
    for (uint32_t i = 0; i < o.via.array.size; ++i) hashes.push_back(Hash(o.via.array.ptr[i]));
    return hashes;
  }
  std::optional<BlockHash> Parent(const Object& o) const {
    if (IsNil(o)) return std::nullopt;
    return Hash(o);
  }
  int64_t Number(const Object& o) const {
    Require(IsNegative(o) || (IsUnsigned(o) && o.via.u64 <= INT64_MAX));
    return IsNegative(o) ? o.via.i64 : static_cast<int64_t>(o.via.u64);
  }
  int64_t Count(const Object& o) const {
    const int64_t number = Number(o);
    Require(number >= 0);
    return number;
  }
  std::string Text(const Object& o) const {
    Require(IsText(o) && o.via.str.size <= limits_.max_string_bytes);
    std::string text = TextOf(o);
    Require(ValidUtf8(text));
    return text;
  }
  void Tokens(const Object& o, BlockStored& event) {
    if (IsNil(o)) return;
    Require(IsArray(o));
    event.token_ids.emplace();
    const bool pairs = o.via.array.size > 0 && IsArray(o.via.array.ptr[0]);
    ChargeTokens(uint64_t{o.via.array.size} * (pairs ? 2 : 1));
    if (pairs) event.tokens_per_position = 2;
    for (uint32_t i = 0; i < o.via.array.size; ++i) {
      const Object& position = o.via.array.ptr[i];
      if (!pairs) {
        event.token_ids->push_back(Number(position));
        continue;
      }
      Require(IsArray(position) && position.via.array.size == 2);
      for (int k = 0; k < 2; ++k) event.token_ids->push_back(Number(position.via.array.ptr[k]));
    }
  }
  LookaheadTokens Lookahead(const Object& o, size_t hashes) {
    Require(IsArray(o) && o.via.array.size == hashes && hashes <= limits_.max_hashes);
    LookaheadTokens lookahead;
    for (uint32_t i = 0; i < o.via.array.size; ++i) {
      const Object& list = o.via.array.ptr[i];
      Require(IsArray(list) && list.via.array.size == o.via.array.ptr[0].via.array.size);
      lookahead.width = list.via.array.size;
      ChargeTokens(list.via.array.size);
      for (uint32_t k = 0; k < list.via.array.size; ++k) {
        lookahead.token_ids.push_back(Number(list.via.array.ptr[k]));
      }
    }
    return lookahead;
  }
  ExtraKey Key(const Object& o) {
    if (IsNil(o)) return {};
    if (o.type == msgpack::type::BOOLEAN) return {o.via.boolean};
    if (IsFloat(o)) return {o.via.f64};
    if (IsText(o)) return ExtraKey::Text(Text(o));
    if (IsUnsigned(o) && o.via.u64 > INT64_MAX) return {o.via.u64};
    if (IsUnsigned(o) || IsNegative(o)) return ExtraKey::Int(Number(o));
    if (IsArray(o)) return {ExtraKeyList{Keys(o)}};
    Require(o.type == msgpack::type::BIN && o.via.bin.size <= limits_.max_string_bytes);
    return ExtraKey::Binary(BytesOf(o));
  }
  ExtraKeys Keys(const Object& o) {
    Require(IsArray(o));
    Charge(o.via.array.size);
    ExtraKeys keys;
    for (uint32_t i = 0; i < o.via.array.size; ++i) keys.push_back(Key(o.via.array.ptr[i]));
    return keys;
  }
  std::vector<std::optional<ExtraKeys>> Entries(const Object& o) {
    Require(IsArray(o));
    Charge(o.via.array.size);
    std::vector<std::optional<ExtraKeys>> entries;
    for (uint32_t i = 0; i < o.via.array.size; ++i) {
      const Object& entry = o.via.array.ptr[i];
      entries.push_back(IsNil(entry) ? std::nullopt : std::optional<ExtraKeys>(Keys(entry)));
    }
    return entries;
  }
  std::vector<std::pair<std::string, ExtraKey>> Metadata(const Object& o) {
    Require(IsMap(o));
    Charge(o.via.map.size);
    std::vector<std::pair<std::string, ExtraKey>> pairs;
    for (uint32_t i = 0; i < o.via.map.size; ++i) {
      std::string key = Text(o.via.map.ptr[i].key);
      pairs.emplace_back(std::move(key), Key(o.via.map.ptr[i].val));
    }
    return pairs;
  }

 private:
  void Charge(uint64_t count) {
    extra_keys_ += count;
    Require(extra_keys_ <= limits_.max_extra_keys);
  }
  void ChargeTokens(uint64_t count) {
    tokens_ += count;
    Require(tokens_ <= limits_.max_tokens);
  }

  const WireLimits& limits_;
  uint64_t extra_keys_ = 0;
  uint64_t tokens_ = 0;
};

using Fields = std::map<std::string, const Object*>;

const Object* Find(const Fields& fields, const char* name) {
  const auto it = fields.find(name);
  return it == fields.end() || IsNil(*it->second) ? nullptr : it->second;
}
const Object& Required(const Fields& fields, const char* name) {
  const auto it = fields.find(name);
  Require(it != fields.end());
  return *it->second;
}

Event Stored(const Fields& fields, EventReader& in) {
  BlockStored event;
  event.block_hashes = in.Hashes(Required(fields, "block_hashes"));
  event.parent_block_hash = in.Parent(Required(fields, "parent_block_hash"));
  in.Tokens(Required(fields, "token_ids"), event);
  event.block_size = in.Count(Required(fields, "block_size"));
  const auto text = [&](const char* name, std::optional<std::string>& out) {
    if (const Object* o = Find(fields, name)) out = in.Text(*o);
  };
  text("medium", event.medium);
  text("lora_name", event.lora_name);
  text("kv_cache_spec_kind", event.kv_cache_spec_kind);
  text("locality", event.locality);
  text("ownership", event.ownership);
  text("session_id", event.session_id);
  text("cache_salt", event.cache_salt);
  if (const Object* o = Find(fields, "lora_id")) event.lora_id = in.Number(*o);
  if (const Object* o = Find(fields, "group_idx")) event.group_idx = in.Number(*o);
  if (const Object* o = Find(fields, "token_offset")) event.token_offset = in.Count(*o);
  if (const Object* o = Find(fields, "kv_cache_spec_sliding_window")) {
    event.kv_cache_spec_sliding_window = in.Count(*o);
  }
  if (const Object* o = Find(fields, "extra_keys")) event.extra_keys = in.Entries(*o);
  if (const Object* o = Find(fields, "lookahead_token_ids")) {
    event.lookahead = in.Lookahead(*o, event.block_hashes.size());
  }
  if (const Object* o = Find(fields, "metadata")) event.metadata = in.Metadata(*o);
  return event;
}

Event Removed(const Fields& fields, const EventReader& in) {
  BlockRemoved event;
  event.block_hashes = in.Hashes(Required(fields, "block_hashes"));
  if (const Object* o = Find(fields, "medium")) event.medium = in.Text(*o);
  if (const Object* o = Find(fields, "locality")) event.locality = in.Text(*o);
  if (const Object* o = Find(fields, "ownership")) event.ownership = in.Text(*o);
  if (const Object* o = Find(fields, "group_idx")) event.group_idx = in.Number(*o);
  return event;
}

// The nesting limit applies to known field values and to all skipped values.
void RequireDepth(const Object& value, const WireLimits& limits) {
  Require(3 + DepthOf(value) <= limits.max_depth);
}

int KindOf(const Object& tag) {
  if (IsUnsigned(tag)) return tag.via.u64 < 3 ? static_cast<int>(tag.via.u64) : -1;
  Require(IsText(tag));
  const std::string name = TextOf(tag);
  return name == "BlockStored"        ? 0
         : name == "BlockRemoved"     ? 1
         : name == "AllBlocksCleared" ? 2
                                      : -1;
}

const std::set<std::string>& NamesOf(int kind) {
  static const std::set<std::string> names[] = {
      {"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
       "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window",
       "locality", "ownership", "session_id", "lookahead_token_ids", "cache_salt", "metadata",
       "token_offset"},
      {"block_hashes", "medium", "group_idx", "locality", "ownership"},
      {"medium"}};
  return names[kind];
}

int MapFields(const Object& o, const WireLimits& limits, Fields& fields) {
  int kind = -1;
  int types = 0;
  for (uint32_t i = 0; i < o.via.map.size; ++i) {
    const Object& key = o.via.map.ptr[i].key;
    if (!IsText(key) || TextOf(key) != "type") continue;
    if (types++ == 0) kind = KindOf(o.via.map.ptr[i].val);
  }
  Require(types == 1 && kind >= 0);
  for (uint32_t i = 0; i < o.via.map.size; ++i) {
    const auto& [key, value] = o.via.map.ptr[i];
    if (IsText(key) && TextOf(key) == "type") continue;
    RequireDepth(value, limits);
    if (!IsText(key) || NamesOf(kind).count(TextOf(key)) == 0) continue;
    Require(fields.emplace(TextOf(key), &value).second);
  }
  return kind;
}

// Returns the name of element `index` of a BlockStored array. If two producers have different
// fields at this index, the type of the value decides.
std::string StoredName(uint32_t index, const Object& value, const Fields& fields) {
  static const char* const names[] = {
      "",          "block_hashes",       "parent_block_hash",
      "token_ids", "block_size",         "lora_id",
      "medium",    "lora_name",          "extra_keys",
      "group_idx", "kv_cache_spec_kind", "kv_cache_spec_sliding_window"};
  if (index > 11) return "";
  if (index == 7 && IsMap(value)) return "metadata";
  if (index == 7 && IsArray(value)) return "";
  if (index == 8 && IsMap(value) && fields.count("metadata") == 0) return "metadata";
  if (index == 8 && IsArray(value) && value.via.array.size > 0 && IsText(value.via.array.ptr[0])) {
    return "";
  }
  return names[index];
}

std::string RemovedName(uint32_t index) {
  static const char* const names[] = {"", "block_hashes", "medium", "group_idx"};
  return index < 4 ? names[index] : "";
}

int ArrayFields(const Object& o, const WireLimits& limits, Fields& fields) {
  Require(o.via.array.size > 0);
  const int kind = KindOf(o.via.array.ptr[0]);
  Require(kind >= 0);
  for (uint32_t i = 1; i < o.via.array.size; ++i) {
    const Object& value = o.via.array.ptr[i];
    RequireDepth(value, limits);
    const std::string name = kind == 0   ? StoredName(i, value, fields)
                             : kind == 1 ? RemovedName(i)
                                         : "";
    if (!name.empty()) fields.emplace(name, &value);
  }
  return kind;
}

Event Read(const Object& o, const WireLimits& limits) {
  Require(IsMap(o) || IsArray(o));
  Fields fields;
  EventReader in(limits);
  const int kind = IsMap(o) ? MapFields(o, limits, fields) : ArrayFields(o, limits, fields);
  if (kind == 0) return Stored(fields, in);
  if (kind == 1) return Removed(fields, in);
  AllBlocksCleared event;
  if (const Object* medium = Find(fields, "medium")) event.medium = in.Text(*medium);
  return event;
}

}  // namespace

std::optional<Event> DecodeEvent(const Object& object, const WireLimits& limits) {
  try {
    if (object.type != msgpack::type::BIN) return Read(object, limits);
    const auto packed = Unpack(object.via.bin.ptr, object.via.bin.size);
    if (!packed || packed->get().type == msgpack::type::BIN) return std::nullopt;
    return Read(packed->get(), limits);
  } catch (const Rejected&) {
    return std::nullopt;
  }
}

}  // namespace kvcast::oracle
