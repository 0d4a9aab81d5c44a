// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/trtllm_events.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>

#include "kvcast/router/prefix_index.h"
#include "router/service/json/bounded_json.h"
#include "router/service/json/json_fields.h"
#include "src/hash/seeded_hash.h"

namespace kvcast::router {
namespace {

constexpr size_t kMaxNesting = 16;
constexpr size_t kMaxHashText = 128;
// A parsed JSON value takes up to 100 bytes of memory, so a text may have one value per 8 bytes. In
// the engine's events, the average value has at least 14 bytes of text.
constexpr size_t kBytesPerValue = 8;
// An event of this library has at most this number of blocks. With one event per block, each block
// would need several hundred bytes. One event for all blocks would delay the index's other users.
constexpr size_t kBlocksOfAnEvent = 1024;
constexpr size_t kFewValues = 1 << 16;  // a text of any length may have this number of values

// nullptr: the member is absent or null.
const Json* Find(const Json& object, const char* field) {
  const auto it = object.find(field);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

std::optional<int64_t> Integer(const Json* value) {
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  if (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX) return std::nullopt;
  return value->get<int64_t>();
}

// An integer, or the text of a digest.
std::optional<BlockHash> HashOf(const Json* value) {
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned()) return BlockHash::FromUnsigned(value->get<uint64_t>());
  if (value->is_number_integer()) return BlockHash::FromSigned(value->get<int64_t>());
  const auto* text = value->get_ptr<const std::string*>();
  if (text == nullptr || text->empty() || text->size() > kMaxHashText) return std::nullopt;
  return BlockHash::FromBytes({reinterpret_cast<const uint8_t*>(text->data()), text->size()});
}

std::optional<std::string> MediumOf(std::optional<int64_t> cache_level) {
  if (cache_level == 0) return kMediumGpu;
  if (cache_level == 1) return kMediumCpu;
  return std::nullopt;
}

struct Block {
  BlockHash hash;
  std::vector<TokenId> tokens;
  std::string medium;
  // True: the block has content besides its tokens, in a form that a query cannot express.
  bool has_extra = false;
};

// A key that no query has. A key of a query has 32 bytes, or is a text.
ExtraKey UnknownContentOf(const BlockHash& hash) {
  return ExtraKey::Binary("block " + (hash.is_bytes()
                                          ? std::string(hash.bytes().begin(), hash.bytes().end())
                                          : std::to_string(hash.integer())));
}

// False: the value is not a block.
bool ReadTokens(const Json& value, Block& block) {
  const Json* tokens = Find(value, "tokens");
  if (tokens == nullptr || !tokens->is_array()) return false;
  for (const Json& token : *tokens) {
    const auto id = token.is_object() ? Integer(Find(token, "token_id")) : std::nullopt;
    if (!id) return false;
    block.tokens.push_back(*id);
    const Json* extra = Find(token, "token_extra_id");
    block.has_extra |= extra != nullptr && *extra != 0;
  }
  return true;
}

std::optional<Block> ReadBlock(const Json& value) {
  if (!value.is_object()) return std::nullopt;
  Block block;
  const auto hash = HashOf(Find(value, "block_hash"));
  const Json* level = Find(value, "cache_level");
  const auto medium = MediumOf(level == nullptr ? std::optional<int64_t>(0) : Integer(level));
  if (!hash || !medium || !ReadTokens(value, block)) return std::nullopt;
  block.hash = *hash;
  block.medium = *medium;
  for (const char* field : {"mm_keys", "lora_id", "cache_salt"}) {
    const Json* extra = Find(value, field);
    block.has_extra |= extra != nullptr && !(extra->is_array() && extra->empty());
  }
  return block;
}

bool IsFull(const TrtllmConfig& config, int64_t window) {
  const std::vector<int64_t>& sizes = config.window_sizes;
  return !config.largest_is_window && window == *std::max_element(sizes.begin(), sizes.end());
}

}  // namespace

class TrtllmEvents::Impl {
 public:
  explicit Impl(TrtllmConfig config)
      : config_(std::move(config)), held_(config_.window_sizes.size()) {
    for (HeldBlocks& held : held_) held = HeldBlocks(0, SeededHash{ProcessSeed()});
  }

  EventBatch Decode(const Json& json) {
    has_events_ = false;
    if (!json.is_array()) {
      Take(json);
    } else {
      for (auto event = json.begin(); event != json.end() && HasRoom(); ++event) Take(*event);
    }
    EventBatch batch;
    batch.events = std::exchange(out_, {});
    batch.data_parallel_rank = config_.attention_dp_rank;
    return batch;
  }

  size_t json_bytes_max() const { return config_.json_bytes_max; }
  bool has_events() const { return has_events_; }
  bool lacks_events() const { return lacks_events_; }
  void Forget() {
    for (HeldBlocks& held : held_) Clear(held);
    lacks_events_ = true;
  }

  TrtllmCounters counters;

 private:
  using HeldBlocks = std::unordered_map<BlockHash, std::string, SeededHash>;  // hash to medium

  // The time of clear() grows with the greatest number of blocks that the table has ever held.
  static void Clear(HeldBlocks& held) {
    if (!held.empty()) held = HeldBlocks(0, SeededHash{ProcessSeed()});
  }
  bool HasRoom() const { return out_.size() < config_.batch_events_max; }
  void Take(const Json& event);
  // False: the data does not have the format.
  bool TakeData(const Json& data, size_t group);
  bool Stored(const Json& data, size_t group);
  bool Removed(const Json& data, size_t group);
  bool Updated(const Json& data, size_t group);
  void NoteId(int64_t id);
  void Drop(size_t group, const BlockHash& hash);
  void AddRemoved(size_t group, const std::string& medium, const BlockHash& hash);
  // Adds a block to the latest event, if this event is a store that the block continues. Else adds
  // an event.
  void AddStored(size_t group, const std::optional<BlockHash>& parent, Block& block);
  void DropAll();
  void DropAllFor(uint64_t& counter);
  BlockStored NewStore(size_t group, const std::string& medium) const;
  size_t held_blocks() const {
    size_t total = 0;
    for (const HeldBlocks& held : held_) total += held.size();
    return total;
  }

  TrtllmConfig config_;
  std::vector<HeldBlocks> held_;  // by group_idx
  std::optional<int64_t> last_id_;
  bool lacks_events_ = true;
  bool has_events_ = false;
  std::vector<Event> out_;
};

void TrtllmEvents::Impl::Take(const Json& event) {
  const auto id = event.is_object() ? Integer(Find(event, "event_id")) : std::nullopt;
  const Json* data = id ? Find(event, "data") : nullptr;
  if (data == nullptr || !data->is_object()) {
    has_events_ = true;
    return DropAllFor(counters.bad_events);
  }
  if (Integer(Find(event, "attention_dp_rank")) != config_.attention_dp_rank) {
    ++counters.other_ranks;
    return;
  }
  has_events_ = true;
  NoteId(*id);
  const auto window = Integer(Find(event, "window_size"));
  const std::vector<int64_t>& sizes = config_.window_sizes;
  auto group = std::find(sizes.begin(), sizes.end(), window.value_or(0));
  if (!window && sizes.size() == 1) group = sizes.begin();
  const bool good = group != sizes.end() &&
                    TakeData(*data, static_cast<size_t>(group - sizes.begin())) && HasRoom();
  if (!good) return DropAllFor(counters.bad_events);
  ++counters.events;
}

void TrtllmEvents::Impl::NoteId(int64_t id) {
  const std::optional<int64_t> last = std::exchange(last_id_, id);
  if (last && id <= *last) {
    DropAllFor(counters.restarts);
  } else if (last && *last != id - 1) {  // the difference of the ids may overflow
    DropAllFor(counters.gaps);
  }
  if (id == 0) lacks_events_ = false;
}

// Removes all blocks: a lost or unreadable event may have been a remove.
void TrtllmEvents::Impl::DropAllFor(uint64_t& counter) {
  ++counter;
  lacks_events_ = true;
  DropAll();
}

void TrtllmEvents::Impl::DropAll() {
  for (size_t group = 0; group < held_.size(); ++group) {
    for (const std::string& medium : {std::string(kMediumGpu), std::string(kMediumCpu)}) {
      for (const auto& [hash, held_medium] : held_[group]) {
        if (held_medium == medium) AddRemoved(group, medium, hash);
      }
    }
    Clear(held_[group]);
  }
}

bool TrtllmEvents::Impl::TakeData(const Json& data, size_t group) {
  const Json* type = Find(data, "type");
  if (type == nullptr || !type->is_string()) return false;
  if (*type == "stored") return Stored(data, group);
  if (*type == "removed") return Removed(data, group);
  if (*type == "updated") return Updated(data, group);
  if (*type != "created") ++counters.unknown_types;
  return true;
}

BlockStored TrtllmEvents::Impl::NewStore(size_t group, const std::string& medium) const {
  const bool full = IsFull(config_, config_.window_sizes[group]);
  BlockStored store;
  store.block_size = config_.tokens_per_block;
  store.medium = medium;
  store.group_idx = static_cast<int64_t>(group);
  store.kv_cache_spec_kind = full ? "full_attention" : "sliding_window";
  if (!full) store.kv_cache_spec_sliding_window = config_.window_sizes[group];
  return store;
}

void TrtllmEvents::Impl::AddStored(size_t group, const std::optional<BlockHash>& parent,
                                   Block& block) {
  auto* const last = out_.empty() ? nullptr : std::get_if<BlockStored>(&out_.back());
  const bool continues =
      last != nullptr && !block.has_extra && !last->extra_keys && last->token_ids &&
      last->medium == block.medium && last->group_idx == static_cast<int64_t>(group) && parent &&
      last->block_hashes.back() == *parent && last->block_hashes.size() < kBlocksOfAnEvent;
  if (continues) {
    last->block_hashes.push_back(block.hash);
    last->token_ids->insert(last->token_ids->end(), block.tokens.begin(), block.tokens.end());
    return;
  }
  BlockStored store = NewStore(group, block.medium);
  store.block_hashes = {block.hash};
  store.parent_block_hash = parent;
  store.token_ids = std::move(block.tokens);
  // The content of each such block gets a name of its own. If several blocks had one name, the name
  // would be ambiguous.
  if (block.has_extra) store.extra_keys.emplace(1, ExtraKeys{UnknownContentOf(block.hash)});
  out_.emplace_back(std::move(store));
}

bool TrtllmEvents::Impl::Stored(const Json& data, size_t group) {
  const Json* list = Find(data, "blocks");
  if (list == nullptr || !list->is_array()) return false;
  const Json* parent_field = Find(data, "parent_hash");
  std::optional<BlockHash> parent = HashOf(parent_field);
  if (parent_field != nullptr && !parent) return false;
  std::vector<Block> blocks;
  for (const Json& value : *list) {
    auto block = ReadBlock(value);
    if (!block) return false;
    blocks.push_back(*std::move(block));
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    Block& block = blocks[i];
    if (std::ssize(block.tokens) != config_.tokens_per_block) {
      counters.partial_blocks += blocks.size() - i;
      break;
    }
    if (!HasRoom()) return false;
    const auto held = held_[group].find(block.hash);
    if (held == held_[group].end() && held_blocks() >= config_.hashes_max) {
      ++counters.refused_hashes;
      lacks_events_ = true;
    } else if (held == held_[group].end() || held->second != block.medium) {
      Drop(group, block.hash);
      AddStored(group, parent, block);
      held_[group].emplace(block.hash, block.medium);
    }
    parent = block.hash;
  }
  return true;
}

bool TrtllmEvents::Impl::Removed(const Json& data, size_t group) {
  const Json* list = Find(data, "block_hashes");
  if (list == nullptr || !list->is_array()) return false;
  for (const Json& value : *list) {
    const auto hash = HashOf(&value);
    if (!hash || !HasRoom()) return false;
    Drop(group, *hash);
  }
  return true;
}

bool TrtllmEvents::Impl::Updated(const Json& data, size_t group) {
  const auto hash = HashOf(Find(data, "block_hash"));
  if (!hash) return false;
  const Json* change = Find(data, "cache_level");
  if (change == nullptr) return true;  // a change of the priority only
  const auto medium =
      change->is_object() ? MediumOf(Integer(Find(*change, "new_value"))) : std::nullopt;
  if (!medium) return false;
  const auto held = held_[group].find(*hash);
  if (held == held_[group].end() || held->second == *medium) return true;
  Drop(group, *hash);
  BlockStored store = NewStore(group, *medium);
  store.block_hashes = {*hash};
  held_[group].emplace(*hash, *medium);
  out_.emplace_back(std::move(store));
  return true;
}

void TrtllmEvents::Impl::Drop(size_t group, const BlockHash& hash) {
  const auto held = held_[group].find(hash);
  if (held == held_[group].end()) return;
  AddRemoved(group, held->second, hash);
  held_[group].erase(held);
}

void TrtllmEvents::Impl::AddRemoved(size_t group, const std::string& medium,
                                    const BlockHash& hash) {
  auto* const last = out_.empty() ? nullptr : std::get_if<BlockRemoved>(&out_.back());
  if (last != nullptr && last->group_idx == static_cast<int64_t>(group) && last->medium == medium &&
      last->block_hashes.size() < kBlocksOfAnEvent) {
    last->block_hashes.push_back(hash);
    return;
  }
  BlockRemoved removed;
  removed.block_hashes = {hash};
  removed.medium = medium;
  removed.group_idx = static_cast<int64_t>(group);
  out_.emplace_back(std::move(removed));
}

Result<TrtllmEvents> TrtllmEvents::Create(const TrtllmConfig& config) {
  std::vector<int64_t> sizes = config.window_sizes;
  std::sort(sizes.begin(), sizes.end());
  if (sizes.empty() || std::ssize(sizes) > kMaxGroups) {
    return Status(StatusCode::kInvalidArgument,
                  "window_sizes: must have 1 to " + std::to_string(kMaxGroups) + " sizes");
  }
  if (sizes.front() < 1 || sizes.back() > kMaxWindow) {
    return Status(StatusCode::kInvalidArgument,
                  "window_sizes: each must be 1 to " + std::to_string(kMaxWindow));
  }
  if (std::adjacent_find(sizes.begin(), sizes.end()) != sizes.end()) {
    return Status(StatusCode::kInvalidArgument, "window_sizes: a size occurs twice");
  }
  if (config.tokens_per_block < 1 || config.tokens_per_block > kMaxBlockSize) {
    return Status(StatusCode::kInvalidArgument,
                  "tokens_per_block: must be 1 to " + std::to_string(kMaxBlockSize));
  }
  return TrtllmEvents(std::make_unique<Impl>(config));
}

TrtllmEvents::TrtllmEvents(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TrtllmEvents::~TrtllmEvents() = default;
TrtllmEvents::TrtllmEvents(TrtllmEvents&&) noexcept = default;
TrtllmEvents& TrtllmEvents::operator=(TrtllmEvents&&) noexcept = default;

std::vector<GroupSpec> TrtllmEvents::Groups(const TrtllmConfig& config) {
  std::vector<GroupSpec> groups;
  for (const int64_t window : config.window_sizes) {
    GroupSpec group = {.kind = SpecKind::kFullAttention, .block_size = config.tokens_per_block};
    if (!IsFull(config, window)) {
      group.kind = SpecKind::kSlidingWindow;
      group.sliding_window = window;
    }
    groups.push_back(group);
  }
  return groups;
}

bool TrtllmEvents::has_events() const { return impl_->has_events(); }
bool TrtllmEvents::lacks_events() const { return impl_->lacks_events(); }
void TrtllmEvents::Forget() { impl_->Forget(); }

Result<EventBatch> TrtllmEvents::Decode(std::string_view json) {
  if (json.size() > impl_->json_bytes_max()) {
    impl_->Forget();
    return Status(StatusCode::kLimit, "json: longer than json_bytes_max");
  }
  const size_t most = kFewValues + json.size() / kBytesPerValue;
  const auto parsed = ReadJson(json, {.max_depth = kMaxNesting, .max_values = most});
  if (!parsed.ok()) {
    impl_->Forget();
    return parsed.status();
  }
  return impl_->Decode(*parsed);
}

TrtllmCounters TrtllmEvents::counters() const { return impl_->counters; }

}  // namespace kvcast::router
