// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/engine/scenario_replay.h"

#include <algorithm>
#include <iterator>

#include "apps/conformance/scenario/scenario_wire.h"
#include "kvcast/wire/wire.h"

namespace kvcast::tools {
namespace {

std::string ListText(const std::vector<BlockId>& blocks) {
  std::string text = "[";
  for (const BlockId block : blocks) text += std::to_string(block.value) + " ";
  return text + "]";
}

std::string HashText(const BlockHash& hash) {
  return hash.is_bytes() ? "bytes" : std::to_string(hash.integer());
}

std::string EventText(const Event& event) {
  if (const auto* stored = std::get_if<BlockStored>(&event)) {
    std::string text = "stored group " + std::to_string(stored->group_idx.value_or(-1)) + " [";
    for (const BlockHash& hash : stored->block_hashes) text += HashText(hash) + " ";
    const size_t tokens = stored->token_ids ? stored->token_ids->size() : 0;
    return text + "] of " + std::to_string(stored->block_size) + ", " + std::to_string(tokens) +
           " tokens";
  }
  if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
    return "removed group " + std::to_string(removed->group_idx.value_or(-1)) + " " +
           HashText(removed->block_hashes.at(0));
  }
  return "cleared";
}

std::string OpText(const ScenarioOp& op) {
  constexpr const char* kNames[] = {"add",    "abort", "reset",       "schedule",
                                    "lookup", "alloc", "cow_release", "advance",
                                    "output", "cache", "free",        "rollback"};
  return std::string(kNames[static_cast<size_t>(op.kind)]) + " " + op.request;
}

// Removes the fields that the recorded layout does not have.
void DropUnsent(const Event& recorded, Event& ours) {
  if (recorded.index() != ours.index()) return;
  if (const auto* sent = std::get_if<BlockStored>(&recorded)) {
    auto& stored = std::get<BlockStored>(ours);
    if (!sent->group_idx) stored.group_idx.reset();
    if (!sent->kv_cache_spec_kind) {
      stored.kv_cache_spec_kind.reset();
      stored.kv_cache_spec_sliding_window.reset();
    }
  }
  if (const auto* sent = std::get_if<BlockRemoved>(&recorded)) {
    if (!sent->group_idx) std::get<BlockRemoved>(ours).group_idx.reset();
  }
}

}  // namespace

Result<ScenarioReplay> ScenarioReplay::Create(const ScenarioConfig& config, Check check) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(config.none_hash.data());
  auto hasher = BlockHasher::FromNoneHash(config.algorithm, {bytes, config.none_hash.size()});
  if (!hasher.ok()) return hasher.status();
  auto cache = CacheManager::Create(config.cache, std::move(hasher).value(),
                                    {.hash_form = config.hash_form});
  if (!cache.ok()) return cache.status();
  return ScenarioReplay(config, std::move(cache).value(), std::move(check));
}

void ScenarioReplay::Expect(int64_t ours, int64_t recorded, const std::string& name) {
  check_(ours == recorded, where_ + ": " + name + " is " + std::to_string(ours) + ", recorded " +
                               std::to_string(recorded));
}

void ScenarioReplay::ExpectBlocks(const BlockLists& ours, const BlockLists& recorded,
                                  const std::string& name) {
  if (ours == recorded) return check_(true, {});
  for (size_t i = 0; i < ours.size() && i < recorded.size(); ++i) {
    if (ours[i] == recorded[i]) continue;
    return check_(false, where_ + ": " + name + " of group " + std::to_string(i) + " are " +
                             ListText(ours[i]) + ", recorded " + ListText(recorded[i]));
  }
  check_(false, where_ + ": " + name + ": the number of groups differs");
}

CacheRequest ScenarioReplay::MakeRequest(const std::string& id, const ScenarioPrompt& prompt) {
  CacheRequest request;
  request.id = id;
  if (!prompt.from.empty()) {
    const auto source = requests_.find(prompt.from);
    const bool known = source != requests_.end() &&
                       prompt.take <= static_cast<int64_t>(source->second.tokens.size());
    if (known) {
      const auto begin = source->second.tokens.begin();
      request.tokens.assign(begin, begin + prompt.take);
    } else {
      check_(false, where_ + ": request " + prompt.from +
                        " does not have the tokens that the prompt repeats");
    }
  }
  request.tokens.insert(request.tokens.end(), prompt.tokens.begin(), prompt.tokens.end());
  request.prompt_tokens = static_cast<int64_t>(request.tokens.size());
  Expect(request.prompt_tokens, prompt.length, "prompt length");
  request.hash_inputs = prompt.inputs;
  request.lora_id = prompt.lora_id;
  request.session_id = prompt.session;
  request.report_hits = prompt.report_hits;
  return request;
}

CacheRequest& ScenarioReplay::RequestOf(const std::string& id) {
  const auto [it, added] = requests_.try_emplace(id);
  if (!added) return it->second;
  check_(false, where_ + ": request " + id + " was never added");
  diverged_ = true;
  it->second.id = id;
  return it->second;
}

void ScenarioReplay::RunLookup(const ScenarioOp& op) {
  PrefixHit& hit = lookups_[op.request];
  hit = cache_->GetComputedBlocks(RequestOf(op.request));
  Expect(hit.tokens, op.hit, "hit");
  ExpectBlocks(hit.blocks, op.blocks, "hit blocks");
  CheckBoundary(hit, op.boundary);
  RequestOf(op.request).shared_prefix_boundary = op.boundary;
}

void ScenarioReplay::RunAlloc(const ScenarioOp& op) {
  AllocateArgs args;
  args.computed_tokens = op.computed;
  args.new_tokens = op.new_tokens;
  args.lookahead_tokens = op.lookahead;
  args.in_flight_tokens = op.in_flight;
  args.full_sequence_must_fit = op.full_fit;
  const bool waiting = running_.count(op.request) == 0;
  Expect(scheduler_.NewTokens(RequestOf(op.request), op, waiting), op.new_tokens, "new tokens");
  args.apply_watermark = waiting && !running_.empty();
  if (waiting) args.hit = &lookups_[op.request];
  BlockLists blocks;
  const bool ok = cache_->AllocateSlots(RequestOf(op.request), args, &blocks);
  Expect(ok ? 1 : 0, op.ok ? 1 : 0, "ok");
  if (ok) running_.insert(op.request);
  diverged_ |= ok != op.ok;
  if (ok && op.ok) ExpectBlocks(blocks, op.blocks, "new blocks");
}

void ScenarioReplay::RunCopyRelease(const ScenarioOp& op) {
  const std::vector<BlockCopy> copies = cache_->TakeCopies();
  std::vector<BlockId> blocks;
  for (const BlockCopy& copy : copies) blocks.insert(blocks.end(), {copy.source, copy.target});
  ExpectBlocks({blocks}, {op.copied}, "copied blocks");
  cache_->ReleaseCopies(copies);
}

void ScenarioReplay::RunOp(const ScenarioOp& op) {
  switch (op.kind) {
    case OpKind::kAdd:
      requests_[op.request] = MakeRequest(op.request, op.prompt);
      return;
    case OpKind::kSchedule:
      scheduler_.BeginStep();
      return cache_->BeginStep();
    case OpKind::kReset:
      return Expect(cache_->ResetPrefixCache() ? 1 : 0, op.ok ? 1 : 0, "ok");
    case OpKind::kLookup:
      return RunLookup(op);
    case OpKind::kAlloc:
      return RunAlloc(op);
    case OpKind::kCowRelease:
      return RunCopyRelease(op);
    case OpKind::kOutput:
      for (const auto& [request, token] : op.sampled) RequestOf(request).tokens.push_back(token);
      return scheduler_.OnOutput(op);
    case OpKind::kCache:
      return cache_->CacheBlocks(RequestOf(op.request), op.computed);
    case OpKind::kFree:
      running_.erase(op.request);
      return cache_->Free(RequestOf(op.request));
    case OpKind::kAbort:
    case OpKind::kAdvance:
    case OpKind::kRollback:  // the next alloc contains the number of computed tokens
      return;
  }
}

void ScenarioReplay::CheckBoundary(const PrefixHit& hit, int64_t recorded) {
  if (!config_.array_events) Expect(hit.shared_prefix_boundary, recorded, "boundary");
}

void ScenarioReplay::CheckEventCount(const ScenarioOp& op) {
  const auto before = static_cast<int64_t>(events_.size());
  std::vector<Event> caused = cache_->TakeEvents();
  std::move(caused.begin(), caused.end(), std::back_inserter(events_));
  const auto after = static_cast<int64_t>(events_.size());
  const auto range = op.event_range.value_or(std::pair{before, before});
  check_(range == std::pair{before, after}, where_ + ": events [" + std::to_string(before) + "," +
                                                std::to_string(after) + "), recorded [" +
                                                std::to_string(range.first) + "," +
                                                std::to_string(range.second) + ")");
}

void ScenarioReplay::CheckEvents(const ScenarioStep& step) {
  const std::vector<Event>& recorded = step.events;
  Expect(static_cast<int64_t>(events_.size()), static_cast<int64_t>(recorded.size()), "events");
  for (size_t i = 0; i < recorded.size() && i < events_.size(); ++i) {
    if (config_.array_events) DropUnsent(recorded[i], events_[i]);
    check_(events_[i] == recorded[i], where_ + ": event " + std::to_string(i) + " is " +
                                          EventText(events_[i]) + ", recorded " +
                                          EventText(recorded[i]));
  }
  if (!step.payload.empty()) CheckPayload(step);
  events_.clear();
}

void ScenarioReplay::CheckPayload(const ScenarioStep& step) {
  std::vector<uint8_t> bytes;
  const Status status =
      EncodeBatch(BatchOf(config_, step, events_), DialectOf(config_, step.events), bytes);
  const bool equal = status.ok() && bytes.size() == step.payload.size() &&
                     std::equal(bytes.begin(), bytes.end(), step.payload.begin(),
                                [](uint8_t a, char b) { return a == static_cast<uint8_t>(b); });
  check_(equal, where_ + ": payload differs");
}

void ScenarioReplay::RunProbe(const ScenarioProbe& probe) {
  CacheRequest request = MakeRequest("probe", probe.prompt);
  const PrefixHit hit = cache_->GetComputedBlocks(request);
  const bool counts = hit.computed_tokens() > 0;
  Expect(counts ? hit.tokens : 0, probe.hit, "probe hit");
  Expect(counts ? hit.replay_tokens : 0, probe.replay, "probe replay");
  CheckBoundary(hit, probe.boundary);
  if (probe.per_group.empty()) return;
  const std::vector<int64_t> alone = cache_->GetComputedTokensPerGroup(request);
  for (size_t i = 0; i < alone.size() && i < probe.per_group.size(); ++i) {
    Expect(alone[i], probe.per_group[i], "probe hit of group " + std::to_string(i));
  }
}

bool ScenarioReplay::RunStep(const ScenarioStep& step) {
  const std::string name = "step " + std::to_string(step.step);
  for (const ScenarioOp& op : step.ops) {
    where_ = name + " " + OpText(op);
    RunOp(op);
    if (op.free_blocks) Expect(cache_->usage().free_blocks, *op.free_blocks, "free blocks");
    CheckEventCount(op);
    if (diverged_) return false;
  }
  where_ = name;
  if (step.published) CheckEvents(step);
  Expect(cache_->usage().free_blocks, step.free_blocks, "free blocks");
  const Status invariants = cache_->CheckInvariants();
  check_(invariants.ok(), where_ + ": " + invariants.message());
  for (size_t i = 0; i < step.probes.size(); ++i) {
    where_ = name + " probe " + std::to_string(i);
    RunProbe(step.probes[i]);
  }
  return true;
}

void ScenarioReplay::CheckFinal(const ScenarioFinal& recorded) {
  where_ = "final";
  for (size_t group = 0; group < recorded.size(); ++group) {
    const auto ours = cache_->CachedKeys(GroupIdx(static_cast<uint32_t>(group)));
    Expect(static_cast<int64_t>(ours.size()), static_cast<int64_t>(recorded[group].size()),
           "cached hashes of group " + std::to_string(group));
    for (const CachedKey& key : ours) {
      const std::pair<BlockHash, int64_t> entry{ToEventHash(key.digest, config_.hash_form),
                                                key.copies};
      const auto found = std::find(recorded[group].begin(), recorded[group].end(), entry);
      check_(found != recorded[group].end(), where_ + ": hash " + HashText(entry.first) + " with " +
                                                 std::to_string(key.copies) +
                                                 " copies is not recorded");
    }
  }
}

}  // namespace kvcast::tools
