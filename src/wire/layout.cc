// SPDX-License-Identifier: Apache-2.0
#include "src/wire/layout.h"

#include <array>
#include <iterator>

namespace kvcast::wire {
namespace {

// Each vLLM generation appended fields to the list of the generation before. The layout of a
// generation is therefore a prefix of these lists.
constexpr Field kVllmStored[] = {
    Field::kBlockHashes, Field::kParentBlockHash, Field::kTokenIds,          Field::kBlockSize,
    Field::kLoraId,      Field::kMedium,          Field::kLoraName,          Field::kExtraKeys,
    Field::kGroupIdx,    Field::kSpecKind,        Field::kSlidingWindow,     Field::kLocality,
    Field::kOwnership,   Field::kSessionId,       Field::kLookaheadTokenIds,
};
constexpr Field kVllmRemoved[] = {
    Field::kBlockHashes, Field::kMedium, Field::kGroupIdx, Field::kLocality, Field::kOwnership,
};
constexpr Field kSglangArrayStored[] = {
    Field::kBlockHashes, Field::kParentBlockHash, Field::kTokenIds, Field::kBlockSize,
    Field::kLoraId,      Field::kMedium,          Field::kMetadata,
};
constexpr Field kSglangMapStored[] = {
    Field::kBlockHashes, Field::kParentBlockHash, Field::kTokenIds,  Field::kBlockSize,
    Field::kLoraId,      Field::kMedium,          Field::kCacheSalt, Field::kSessionId,
};
// All fields that the decoder reads by name: vLLM's fields, then the fields of other producers.
constexpr Field kNamedStored[] = {
    Field::kBlockHashes, Field::kParentBlockHash, Field::kTokenIds,          Field::kBlockSize,
    Field::kLoraId,      Field::kMedium,          Field::kLoraName,          Field::kExtraKeys,
    Field::kGroupIdx,    Field::kSpecKind,        Field::kSlidingWindow,     Field::kLocality,
    Field::kOwnership,   Field::kSessionId,       Field::kLookaheadTokenIds, Field::kCacheSalt,
    Field::kMetadata,    Field::kTokenOffset,
};

// vLLM's fields, then kvcast's own.
constexpr Field kKvcastStored[] = {
    Field::kBlockHashes, Field::kParentBlockHash, Field::kTokenIds,          Field::kBlockSize,
    Field::kLoraId,      Field::kMedium,          Field::kLoraName,          Field::kExtraKeys,
    Field::kGroupIdx,    Field::kSpecKind,        Field::kSlidingWindow,     Field::kLocality,
    Field::kOwnership,   Field::kSessionId,       Field::kLookaheadTokenIds, Field::kTokenOffset,
};
constexpr Field kKvcastCleared[] = {Field::kMedium};

constexpr EventLayout Prefix(std::span<const Field> fields, size_t count, size_t always) {
  return {fields.first(count), always, fields.data() == kVllmStored && count >= 15};
}
constexpr Layout VllmArray(std::string_view name, size_t stored, size_t removed) {
  return {name,
          false,
          true,
          Prefix(kVllmStored, stored, stored),
          Prefix(kVllmRemoved, removed, removed),
          {}};
}
constexpr Layout VllmMap(std::string_view name, size_t stored, size_t removed) {
  return {name, true, true, Prefix(kVllmStored, stored, 7), Prefix(kVllmRemoved, removed, 2), {}};
}
constexpr Layout SglangArray(std::string_view name, size_t stored, size_t removed) {
  return {name,
          false,
          true,
          Prefix(kSglangArrayStored, stored, stored < 7 ? stored : 6),
          Prefix(kVllmRemoved, removed, removed),
          {}};
}
constexpr Layout WithoutRank(Layout layout) {
  layout.rank = false;
  return layout;
}

constexpr std::array kLayouts = {
    WithoutRank(VllmArray("vllm-1", 5, 1)),
    VllmArray("vllm-2", 5, 1),
    VllmArray("vllm-3", 6, 2),
    VllmArray("vllm-4", 6, 2),
    VllmArray("vllm-5", 7, 2),
    VllmArray("vllm-6", 8, 2),
    VllmArray("vllm-7", 9, 3),
    VllmArray("vllm-8", 11, 3),
    VllmMap("vllm-9", 11, 3),
    VllmMap("vllm-10", 12, 4),
    VllmMap("vllm-11", 14, 5),
    VllmMap("vllm-12", 15, 5),
    WithoutRank(SglangArray("sglang-1", 5, 1)),
    SglangArray("sglang-2", 5, 1),
    SglangArray("sglang-3", 6, 2),
    SglangArray("sglang-4", 7, 2),
    Layout{"sglang-5", true, true, Prefix(kSglangMapStored, 8, 5), Prefix(kVllmRemoved, 2, 1), {}},
    Layout{"kvcast-1", true, true, Prefix(kKvcastStored, 16, 7), Prefix(kVllmRemoved, 5, 2),
           Prefix(kKvcastCleared, 1, 0)},
};
static_assert(kLayouts.size() == static_cast<size_t>(Dialect::kKvcast1) + 1);

static_assert(std::size(kVllmStored) + 1 == 16 && std::size(kSglangMapStored) + 1 <= 15);

constexpr Field kRequiredStored[] = {Field::kBlockHashes, Field::kParentBlockHash, Field::kTokenIds,
                                     Field::kBlockSize};
constexpr Field kRequiredRemoved[] = {Field::kBlockHashes};

constexpr std::array<EventFields, 3> kEventFields = {{
    {kNamedStored, std::span<const Field>(kVllmStored).first(11), FieldSet(kRequiredStored)},
    {kVllmRemoved, std::span<const Field>(kVllmRemoved).first(3), FieldSet(kRequiredRemoved)},
    {kKvcastCleared, {}, {}},
}};

}  // namespace

const EventFields& FieldsOf(EventKind kind) { return kEventFields[static_cast<size_t>(kind)]; }

const Layout& LayoutOf(Dialect dialect) { return kLayouts[static_cast<size_t>(dialect)]; }

}  // namespace kvcast::wire

namespace kvcast {

std::string_view DialectName(Dialect dialect) { return wire::LayoutOf(dialect).name; }

std::optional<Dialect> ParseDialect(std::string_view name) {
  if (name == "map") return kDefaultDialect;
  if (name == "positional") return Dialect::kVllm8;
  if (name == "sglang") return Dialect::kSglang3;
  for (size_t i = 0; i < wire::kLayouts.size(); ++i) {
    if (wire::kLayouts[i].name == name) return static_cast<Dialect>(i);
  }
  return std::nullopt;
}

}  // namespace kvcast
