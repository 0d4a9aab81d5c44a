// SPDX-License-Identifier: Apache-2.0
#include "router/store_span.h"

#include <algorithm>

#include "router/record_path.h"

namespace kvcast::router {
namespace {

using Known = Boundary::Known;

// More inner states than this per block are not kept.
constexpr int64_t kMaxInnerStates = 256;
// No prompt reaches it; sums with it fit 64 bits.
constexpr int64_t kMaxOffset = int64_t{1} << 40;

class SpanReader {
 public:
  SpanReader(const StoreSpan& span, const TokenRecords& records, int64_t unit)
      : span_(span), records_(records), size_(span.event.block_size) {
    if (unit > 0 && size_ % unit == 0 && size_ / unit - 1 <= kMaxInnerStates) inner_step_ = unit;
    const auto blocks = static_cast<size_t>(span.blocks);
    result_.blocks_of.assign(span.hashes.size(), kNoBlock);
    result_.boundaries.resize(blocks + 1);
    result_.source.assign(blocks + 1, kNoRecord);
    result_.from_behind.assign(blocks + 1, false);
    result_.inner.resize(blocks);
  }

  SpanContent Read(const SparseRule* rule, const GroupSpec* spec) {
    Place(rule, spec);
    if (result_.inconsistent) return std::move(result_);
    IndexBlocks();
    TakeKnownBoundaries();
    FillFromBehind();
    FillForward();
    return std::move(result_);
  }

 private:
  const TokenRecord& Hash(size_t i) const { return records_.at(span_.hashes[i]); }

  std::optional<int64_t> Start() const {
    if (span_.at_root) return 0;
    if (span_.parent != kNoRecord && records_.at(span_.parent).resolved()) {
      return records_.at(span_.parent).position;
    }
    if (span_.event.token_offset) return span_.event.token_offset;
    if (!span_.dense()) return std::nullopt;
    for (size_t i = 0; i < span_.hashes.size(); ++i) {
      if (Hash(i).resolved()) return Hash(i).position - static_cast<int64_t>(i + 1) * size_;
    }
    return std::nullopt;
  }

  void Place(const SparseRule* rule, const GroupSpec* spec) {
    result_.start = Start();
    const std::optional<int64_t>& told = span_.event.token_offset;
    result_.inconsistent =
        result_.start && (*result_.start < 0 || (told && *told != *result_.start));
    std::vector<int64_t>& blocks_of = result_.blocks_of;
    if (span_.dense()) {
      for (size_t i = 0; i < blocks_of.size(); ++i) blocks_of[i] = static_cast<int64_t>(i);
      return;
    }
    if (!result_.start) return;
    PlaceResolved();
    result_.inconsistent |= !PlaceByCounting(span_.blocks, blocks_of);
    if (result_.inconsistent || rule == nullptr || spec == nullptr) return;
    if (*result_.start % size_ != 0 || spec->block_size != size_) return;
    const auto placed = std::count(blocks_of.begin(), blocks_of.end(), kNoBlock);
    result_.rule_refuted =
        !PlaceByRule(*rule, *spec, *result_.start / size_, span_.blocks, blocks_of);
    result_.by_rule = placed != std::count(blocks_of.begin(), blocks_of.end(), kNoBlock);
  }

  void PlaceResolved() {
    for (size_t i = 0; i < span_.hashes.size(); ++i) {
      if (!Hash(i).resolved()) continue;
      const int64_t offset = Hash(i).position - *result_.start;
      const bool fits = offset > 0 && offset % size_ == 0 && offset / size_ <= span_.blocks;
      if (fits) result_.blocks_of[i] = offset / size_ - 1;
      result_.inconsistent |= !fits;
    }
  }

  void IndexBlocks() {
    hash_of_.assign(static_cast<size_t>(span_.blocks), kNoBlock);
    for (size_t i = 0; i < result_.blocks_of.size(); ++i) {
      const int64_t block = result_.blocks_of[i];
      if (block != kNoBlock) hash_of_[static_cast<size_t>(block)] = static_cast<int64_t>(i);
    }
  }

  void Tell(size_t boundary, const TokenRecord& record, RecordId id) {
    if (record.state == TokenRecord::State::kUnresolved) return;
    result_.boundaries[boundary] = {record.resolved() ? Known::kYes : Known::kHidden, record.reason,
                                    record.key};
    result_.source[boundary] = id;
  }

  void TakeKnownBoundaries() {
    if (span_.at_root) TakeRoot();
    if (span_.parent != kNoRecord) Tell(0, records_.at(span_.parent), span_.parent);
    for (size_t block = 0; block < hash_of_.size(); ++block) {
      if (hash_of_[block] == kNoBlock) continue;
      const auto hash = static_cast<size_t>(hash_of_[block]);
      Tell(block + 1, Hash(hash), span_.hashes[hash]);
    }
  }

  // What a block that is not named adds besides its tokens is not in the event.
  bool ShowsContent(size_t block) const {
    return hash_of_[block] != kNoBlock || !span_.event.extra_keys;
  }
  BlockContent ContentOf(size_t block) const {
    const auto hash = static_cast<size_t>(std::max<int64_t>(hash_of_[block], 0));
    return ReadBlockContent(span_.event, hash, block == 0 && span_.at_root);
  }

  void TakeRoot() {
    if (hash_of_.empty() || !ShowsContent(0)) return;
    const BlockStored& event = span_.event;
    const bool unnamed_lora = event.lora_id && !event.lora_name;
    result_.boundaries[0] = {
        unnamed_lora ? Known::kHidden : Known::kYes, Unresolved::kHiddenContent,
        ContentRoot(event.lora_name.value_or(""), ContentOf(0).salt, event.tokens_per_position)};
  }

  void FillFromBehind() {
    std::optional<RecordPath> path;
    RecordId source = kNoRecord;
    int64_t behind = 0;
    int64_t position = 0;
    for (auto i = std::ssize(result_.boundaries) - 1; i >= 0; --i) {
      const auto at = static_cast<size_t>(i);
      if (result_.source[at] != kNoRecord) {
        const TokenRecord& record = records_.at(result_.source[at]);
        path.reset();
        if (!record.resolved()) continue;
        path.emplace(records_, record);
        source = result_.source[at];
        behind = i;
        position = record.position;
        continue;
      }
      if (!path || result_.boundaries[at].known != Known::kNo) continue;
      const auto state = path->StateAt(position - (behind - i) * size_);
      if (!state) continue;
      result_.boundaries[at] = {Known::kYes, Unresolved::kHiddenContent, *state};
      result_.source[at] = source;
      result_.from_behind[at] = true;
    }
  }

  void FillForward() {
    for (size_t block = 0; block < hash_of_.size(); ++block) {
      const Boundary& before = result_.boundaries[block];
      if (before.known == Known::kNo || !ShowsContent(block)) continue;
      const Boundary after = After(block, before);
      Boundary& found = result_.boundaries[block + 1];
      // Hidden in one event, plain in another: where a block's extra keys end may hide what a
      // smaller block shows.
      const bool shown = found.known == Known::kHidden && after.known == Known::kYes &&
                         found.reason == Unresolved::kHiddenContent;
      if (found.known == Known::kNo || shown) {
        found = after;
        const int64_t hash = hash_of_[block];
        result_.source[block + 1] =
            hash == kNoBlock ? result_.source[block] : span_.hashes[static_cast<size_t>(hash)];
      } else if (found.known == Known::kYes && after.known == Known::kYes &&
                 found.state != after.state && hash_of_[block] != kNoBlock) {
        result_.conflict = span_.hashes[static_cast<size_t>(hash_of_[block])];
        return;
      }
    }
  }

  Boundary After(size_t block, const Boundary& before) {
    if (before.known == Known::kHidden) return before;
    const BlockContent content = ContentOf(block);
    if (content.hidden) return {Known::kHidden, Unresolved::kHiddenContent, 0};
    const auto width = static_cast<size_t>(span_.event.tokens_per_position);
    const auto tokens = span_.TokensOf(static_cast<int64_t>(block));
    ContentState state = before.state;
    size_t item = 0;
    for (int64_t i = 0; i < size_; ++i) {
      for (; item < content.items.size() && content.items[item].position == i; ++item) {
        state = AddItem(state, content.items[item].identifier);
      }
      state = AddPosition(state, tokens.subspan(static_cast<size_t>(i) * width, width));
      const bool inside = inner_step_ > 0 && i + 1 < size_ && (i + 1) % inner_step_ == 0;
      if (inside) result_.inner[block].push_back(state);
    }
    // Items out of order are nothing that an engine sends.
    if (item < content.items.size()) return {Known::kHidden, Unresolved::kHiddenContent, 0};
    return {Known::kYes, Unresolved::kHiddenContent, state};
  }

  const StoreSpan& span_;
  const TokenRecords& records_;
  int64_t size_;
  int64_t inner_step_ = 0;
  std::vector<int64_t> hash_of_;  // by block; kNoBlock: not named
  SpanContent result_;
};

}  // namespace

std::span<const TokenId> StoreSpan::TokensOf(int64_t block) const {
  const auto width = static_cast<size_t>(event.block_size * event.tokens_per_position);
  return std::span(*event.token_ids).subspan(static_cast<size_t>(block) * width, width);
}

bool HasUsableTokens(const BlockStored& event) {
  if (!event.token_ids || event.token_ids->empty()) return false;
  if (event.block_size < 1 || event.block_size > kMaxBlockSize) return false;
  const std::vector<TokenId>& tokens = *event.token_ids;
  const int64_t width = event.tokens_per_position;
  if (width != 1 && width != 2) return false;
  if (std::ssize(tokens) % (event.block_size * width) != 0) return false;
  if (std::ssize(event.block_hashes) > std::ssize(tokens) / (event.block_size * width))
    return false;
  if (event.token_offset && (*event.token_offset < 0 || *event.token_offset > kMaxOffset)) {
    return false;
  }
  if (event.extra_keys && event.extra_keys->size() != event.block_hashes.size()) return false;
  // Pairs overlap: (a, b), (b, c).
  for (size_t i = 1; width == 2 && i + 1 < tokens.size(); i += 2) {
    if (tokens[i] != tokens[i + 1]) return false;
  }
  return true;
}

SpanContent ReadSpan(const StoreSpan& span, const TokenRecords& records, const SparseRule* rule,
                     const GroupSpec* spec, int64_t unit) {
  return SpanReader(span, records, unit).Read(rule, spec);
}

}  // namespace kvcast::router
