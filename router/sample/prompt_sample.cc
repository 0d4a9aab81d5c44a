// SPDX-License-Identifier: Apache-2.0
#include "router/sample/prompt_sample.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace kvcast::router {

void PromptSample::Follow(const Store& store, const ContentKeys& keys) {
  // With another hash_block_size, the keys name other prefixes.
  if (store.hash_block_size != hash_block_size_) {
    const bool may_choose = may_choose_;
    Clear();
    may_choose_ = may_choose;
    hash_block_size_ = store.hash_block_size;
  }
  if (hash_block_size_ <= 0 || store.event.block_size % hash_block_size_ != 0) return;
  const std::optional<size_t> before = UnitsBefore(store);
  if (!before) return;
  // The path is reused: temporary memory that is allocated between lasting allocations would
  // fragment the heap.
  static thread_local StorePath path;
  ReadStorePath(store.event, store.start, store.content, hash_block_size_, store.lookahead, keys,
                path);
  if (path.keys.empty()) {
    NoteBlocks(store, *before);
  } else {
    NotePath(store, path, *before, keys);
  }
  Trim(store);
}

std::optional<size_t> PromptSample::UnitsBefore(const Store& store) const {
  if (store.start.at_root) return 0;
  const auto size = static_cast<size_t>(hash_block_size_);
  for (const SampledPrompt& prompt : prompts_) {
    if (store.start.end > 0) {
      const size_t units = store.start.end / size;
      if (store.start.end % size == 0 && prompt.HasPrefix(units, store.start.parent)) return units;
      continue;
    }
    const auto end = std::ranges::find(prompt.keys(), store.start.parent);
    if (end != prompt.keys().end()) {
      return static_cast<size_t>(end - prompt.keys().begin()) + 1;
    }
  }
  return std::nullopt;
}

void PromptSample::NotePath(const Store& store, const StorePath& path, size_t before,
                            const ContentKeys& keys) {
  PathRelation relation = NoteShared(store, path, before);
  if (!relation.follows && may_choose_) {
    relation.follows = prompts_.size();
    Choose(store,
           relation.diverges_from ? prompts_[*relation.diverges_from].Branch(relation.shared)
                                  : SampledPrompt(),
           keys);
    if (relation.shared > 0) prompts_.back().NoteAskedFor(relation.shared);
    prompts_.back().TakeAskedForLately();
  }
  if (!relation.follows) return;
  SampledPrompt& prompt = Grow(*relation.follows, before, path);
  for (const uint32_t end : path.ends) {
    if (before + end < prompt.units()) prompt.NoteStored(before + end, store.group);
  }
}

// Compares the path with all sampled prompts that contain the units before the path.
PromptSample::PathRelation PromptSample::NoteShared(const Store& store, const StorePath& path,
                                                    size_t before) {
  PathRelation relation;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    SampledPrompt& prompt = prompts_[i];
    if (!store.start.at_root && !prompt.HasPrefix(before, store.start.parent)) continue;
    const SampledPrompt::Agreement agreement = prompt.Compare(before, path.keys);
    const size_t shared = before + agreement.units;
    if (shared == 0) continue;
    for (const uint32_t end : path.ends) {
      if (end >= agreement.units) break;
      if (prompt.NoteStored(before + end, store.group)) prompt.NoteAskedFor(before + end + 1);
    }
    if (!agreement.differs) {
      relation.follows = i;
      continue;
    }
    prompt.NoteAskedFor(shared);
    if (shared > relation.shared) {
      relation.diverges_from = i;
      relation.shared = shared;
    }
  }
  return relation;
}

void PromptSample::NoteBlocks(const Store& store, size_t before) {
  for (SampledPrompt& prompt : prompts_) {
    if (!store.start.at_root && !prompt.HasPrefix(before, store.start.parent)) continue;
    auto at = prompt.keys().begin() + static_cast<ptrdiff_t>(before);
    for (const ContentKey content : store.content.contents) {
      if (content == kUnnamed || !MayHave(content)) continue;
      const auto found = std::find(at, prompt.keys().end(), content);
      if (found == prompt.keys().end()) continue;
      at = found;
      const auto unit = static_cast<size_t>(found - prompt.keys().begin());
      if (prompt.NoteStored(unit, store.group)) prompt.NoteAskedFor(unit + 1);
    }
  }
}

SampledPrompt& PromptSample::Grow(size_t which, size_t before, const StorePath& path) {
  SampledPrompt& prompt = prompts_[which];
  const size_t room = kMaxUnits - std::min(before, kMaxUnits);
  const auto more = std::span(path.keys).first(std::min(room, path.keys.size()));
  if (!path.whole || more.size() < path.keys.size()) prompt.Cut();
  const size_t known = prompt.units();
  if (!prompt.Extend(before, more)) return prompt;
  prompt.SetGrownAt(stored_);
  AddToFilter(more);
  if (prompt.units() == known) return prompt;
  const auto at = prompts_.begin() + static_cast<ptrdiff_t>(which);
  std::rotate(at, at + 1, prompts_.end());
  return prompts_.back();
}

void PromptSample::Choose(const Store& store, SampledPrompt prompt, const ContentKeys& keys) {
  if (store.start.at_root && store.event.token_ids) {
    const std::span<const TokenId> tokens = *store.event.token_ids;
    const size_t count = std::min(tokens.size(), static_cast<size_t>(hash_block_size_));
    prompt.SetStart(keys.Extend(keys.Root({}), tokens.first(count)),
                    keys.Root(ScopeOf(store.event)));
  }
  prompts_.push_back(std::move(prompt));
  may_choose_ = false;
  const uint64_t held = store.held - std::min(store.held, store.event.block_hashes.size());
  wait_ = static_cast<int64_t>(held / std::max(kEnoughPrompts, prompts_.size()));
}

size_t PromptSample::Bytes() const {
  size_t bytes = filter_.size() * sizeof(uint64_t);
  for (const SampledPrompt& prompt : prompts_) bytes += prompt.Bytes();
  return bytes;
}

bool PromptSample::IsOver(const Store& store) const {
  if (prompts_.size() > kMaxPrompts) return true;
  const uint64_t room = std::max<uint64_t>(store.index_bytes / kShare, kMinBytes);
  // While a long prompt grows, it must not displace the other prompts.
  const size_t of_filter = std::min(prompts_.back().units(), filter_.size() * sizeof(uint64_t));
  const size_t last = prompts_.back().Bytes() + of_filter;
  return Bytes() - last + std::min<uint64_t>(last, room / kEnoughPrompts) > room;
}

void PromptSample::Trim(const Store& store) {
  while (prompts_.size() > 1 && IsOver(store)) {
    prompts_.erase(prompts_.begin() + static_cast<ptrdiff_t>(Victim(store.held)));
  }
}

// Returns the index of the prompt to remove. It is never the last prompt, which may be growing.
size_t PromptSample::Victim(uint64_t held) {
  const auto last = prompts_.end() - 1;
  // If a prompt last grew before the oldest block of the cache was stored, it is not in the cache.
  const bool is_old = stored_ - prompts_.front().grown_at() > held;
  if (prompts_.size() <= kEnoughPrompts && !is_old) {
    const auto longest = std::max_element(
        prompts_.begin(), last,
        [](const auto& one, const auto& other) { return one.units() < other.units(); });
    return static_cast<size_t>(longest - prompts_.begin());
  }
  // A prefix that several requests share is stored once. If its prompt is removed, the later blocks
  // of these requests cannot be assigned to a prompt. So a prompt stays if another request used it
  // since this loop last examined it.
  for (auto left = last - prompts_.begin(); left > 0; --left) {
    if (!prompts_.front().TakeAskedForLately()) break;
    std::rotate(prompts_.begin(), prompts_.begin() + 1, last);
  }
  return 0;
}

void PromptSample::AddToFilter(std::span<const ContentKey> contents) {
  const auto add = [&](std::span<const ContentKey> some) {
    filtered_ += some.size();
    for (const ContentKey content : some) {
      if (content != kUnnamed) filter_[BitOf(content) / 64] |= uint64_t{1} << BitOf(content) % 64;
    }
  };
  if ((filtered_ + contents.size()) * 4 <= filter_.size() * 64) return add(contents);
  size_t units = 0;
  for (const SampledPrompt& prompt : prompts_) units += prompt.units();
  filter_.assign(std::max(units / 8 + 1, kMinFilterWords), 0);
  filtered_ = 0;
  for (const SampledPrompt& prompt : prompts_) add(prompt.keys());
}

}  // namespace kvcast::router
