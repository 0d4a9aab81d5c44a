// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <utility>

#include "kvcast/spec/offload_rules.h"

namespace kvcast {
namespace {

class Lookup {
 public:
  Lookup(const OffloadLayout& layout, const OffloadQuestion& question,
         const OffloadAnswers& answers)
      : layout_(layout),
        question_(question),
        answers_(answers),
        max_tokens_(MaxTokens()),
        dropped_last_(layout.groups.size(), false) {}

  OffloadAnswer Run();

 private:
  enum class Pass : uint8_t { kNone, kAll, kWindows };

  int64_t MaxTokens() const;
  int64_t NumChunks(size_t group) const {
    return question_.num_hashes / layout_.groups[group].hashes_per_chunk;
  }
  // The number of tokens that complete chunks provide. nullopt: the answer is pending.
  std::optional<int64_t> CompleteTokens();
  // One round over the groups. False: nothing can be loaded.
  bool RunPass(Pass pass);
  // Lowers max_tokens_ to the tokens that this group can serve. False: nothing can be loaded.
  bool Visit(size_t group);
  // Both functions lower max_tokens_ to the tokens that the group can serve.
  void VisitAsVllm(size_t group, bool drops_last);
  void VisitWindow(size_t group, bool drops_last);
  bool scans_chunk_after_end(size_t group) const {
    return layout_.groups[group].window_chunks || !layout_.compatible ||
           layout_.rules >= EngineRules::kV032;
  }
  std::optional<int64_t> Scan(size_t group, int64_t first, int64_t last, bool drops_last);
  LookupResult LookUpChunks(size_t group, const ChunkRange& chunks, int64_t& missing);
  void OnShorterPrefix(size_t group);
  bool WaitsForAnotherLoad(int64_t gain);
  bool HasBridge(int64_t end, bool& waits) const;
  int64_t LastBoundary(int64_t end, int64_t margin) const;
  OffloadAnswer WithTail(int64_t complete);

  const OffloadLayout& layout_;
  const OffloadQuestion& question_;
  const OffloadAnswers& answers_;
  int64_t max_tokens_;              // upper bound of the prefix
  std::vector<bool> dropped_last_;  // EAGLE groups that have dropped their last chunk
  bool deferred_ = false;           // the result depends on pending chunks
  bool window_seen_ = false;        // a window group was visited in this pass
  int64_t gain_ = 0;                // at the latest visit: loadable tokens after local_tokens
  Pass next_ = Pass::kAll;          // the next pass
};

int64_t Lookup::MaxTokens() const {
  // The engine computes the last token, and a window must be complete before this token.
  int64_t tokens = question_.num_tokens - (layout_.has_windows() ? 1 : 0);
  if (layout_.mamba_align_tokens) {
    tokens = tokens / *layout_.mamba_align_tokens * *layout_.mamba_align_tokens;
  }
  if (!question_.max_load_tokens) return tokens;
  const int64_t end = question_.local_tokens + std::min(*question_.max_load_tokens, tokens);
  if (end >= tokens) return tokens;
  int64_t chunk = 1;
  for (const OffloadGroup& group : layout_.groups) chunk = std::lcm(chunk, group.tokens_per_chunk);
  return end / chunk * chunk;
}

std::optional<int64_t> Lookup::Scan(size_t group, int64_t first, int64_t last, bool drops_last) {
  const OffloadGroup& rules = layout_.groups[group];
  const ChunkAnswer answer = [&](int64_t chunk) { return answers_.chunk(group, first + chunk); };
  if (!rules.window_chunks) return ScanPrefix(last - first, answer);
  const int64_t required = *rules.window_chunks + (drops_last ? 1 : 0);
  if (layout_.rules < EngineRules::kV032) return ScanWindow(last - first, required, answer);
  // The end of the prefix if the scan finds a run that ends with the last chunk.
  const int64_t end = std::min(max_tokens_, (last - (drops_last ? 1 : 0)) * rules.tokens_per_chunk);
  const int64_t at_end = LoadWindowChunks(rules, end) + (drops_last ? 1 : 0);
  return ScanLoadWindow(last - first, required, at_end, answer);
}

void Lookup::OnShorterPrefix(size_t group) {
  if (!layout_.groups[group].eagle) std::fill(dropped_last_.begin(), dropped_last_.end(), false);
  if (deferred_) {
    // The pending chunks may lie after the new end.
    deferred_ = false;
    next_ = Pass::kAll;
  } else if (window_seen_ && next_ == Pass::kNone) {
    next_ = Pass::kWindows;
  }
}

void Lookup::VisitAsVllm(size_t group, bool drops_last) {
  const OffloadGroup& rules = layout_.groups[group];
  const int64_t chunk = rules.tokens_per_chunk;
  int64_t end = max_tokens_;
  if (drops_last && scans_chunk_after_end(group))
    end = std::min(end + chunk, NumChunks(group) * chunk);
  const int64_t first = question_.local_tokens / chunk;
  const std::optional<int64_t> count = Scan(group, first, CeilDiv(end, chunk), drops_last);
  if (!count) {
    deferred_ = true;
    return;
  }
  const bool drop = drops_last && *count > 0;
  if (drop) dropped_last_[group] = true;
  max_tokens_ = std::min(max_tokens_, chunk * (first + *count - (drop ? 1 : 0)));
}

// Queries the chunks from the last to the first. kMiss: a chunk is missing, and `missing` is its
// index. kPending: no chunk is missing, but a chunk cannot be loaded yet. kHit: all chunks can be
// loaded.
LookupResult Lookup::LookUpChunks(size_t group, const ChunkRange& chunks, int64_t& missing) {
  bool waits = false;
  for (int64_t chunk = chunks.end; chunk-- > chunks.begin;) {
    LookupResult result = LookupResult::kMiss;
    if (chunk < NumChunks(group)) result = answers_.chunk(group, chunk);
    if (result == LookupResult::kMiss) {
      missing = chunk;
      return result;
    }
    waits |= result != LookupResult::kHit;
  }
  return waits ? LookupResult::kPending : LookupResult::kHit;
}

// Finds the longest prefix that needs no missing chunk. The set of needed chunks changes only at
// some prefix lengths. Between two such lengths, a longer prefix needs no more chunks than a
// shorter prefix. The next candidate is therefore the prefix that ends where the missing chunk
// begins, or where a chunk of chunked attention begins. With `drops_last`, a prefix also needs the
// chunk after its end, and the candidate ends one chunk before the missing chunk.
void Lookup::VisitWindow(size_t group, bool drops_last) {
  const OffloadGroup& rules = layout_.groups[group];
  const int64_t chunk = rules.tokens_per_chunk;
  const int64_t first = question_.local_tokens / chunk;
  int64_t& end = max_tokens_;
  // A Mamba state exists only for the end of its chunk.
  if (rules.spec.kind == SpecKind::kMamba) end = end / chunk * chunk;
  while (end > question_.local_tokens) {
    ChunkRange needed = NeededChunks(rules, end);
    needed.begin = std::max(needed.begin, first);
    if (drops_last) ++needed.end;  // for the draft head; not part of the prefix
    int64_t missing = 0;
    const LookupResult result = LookUpChunks(group, needed, missing);
    if (result == LookupResult::kPending) deferred_ = true;
    if (result == LookupResult::kHit && drops_last) dropped_last_[group] = true;
    if (result != LookupResult::kMiss) return;
    const int64_t before = (drops_last ? missing - 1 : missing) * chunk;
    const bool restarts = rules.spec.kind == SpecKind::kChunkedLocalAttention;
    const int64_t restart = restarts ? SkippedTokens(rules.spec, end - 1) : 0;
    end = std::max(before, restart);
  }
}

bool Lookup::Visit(size_t group) {
  const OffloadGroup& rules = layout_.groups[group];
  const int64_t chunk = rules.tokens_per_chunk;
  const int64_t local = question_.local_tokens;
  const bool by_load = rules.window_chunks && !layout_.compatible;
  // With by_load, the chunks that a load needs may end before the end of the prefix.
  if (!by_load) max_tokens_ = std::min(max_tokens_, NumChunks(group) * chunk);
  if (max_tokens_ - local < chunk) return false;
  const bool drops_last = rules.eagle && !dropped_last_[group];
  if (by_load) {
    VisitWindow(group, drops_last);
  } else {
    VisitAsVllm(group, drops_last);
  }
  const int64_t gain = max_tokens_ - local;
  if (gain < chunk) return false;
  if (gain < gain_) OnShorterPrefix(group);
  gain_ = gain;
  window_seen_ |= rules.window_chunks.has_value();
  return true;
}

bool Lookup::RunPass(Pass pass) {
  window_seen_ = false;
  for (const size_t group : layout_.lookup_order) {
    if (pass == Pass::kWindows && !layout_.groups[group].window_chunks) continue;
    if (!Visit(group)) return false;
  }
  return true;
}

bool Lookup::WaitsForAnotherLoad(int64_t gain) {
  if (!answers_.being_loaded) return false;
  const int64_t end = question_.local_tokens + gain;
  for (const size_t group : layout_.lookup_order) {
    const OffloadGroup& rules = layout_.groups[group];
    ChunkRange needed = NeededChunks(rules, end);
    if (layout_.compatible) {
      needed.end = CeilDiv(end, rules.tokens_per_chunk);
      int64_t chunks = rules.window_chunks.value_or(needed.end);
      if (rules.window_chunks && layout_.rules >= EngineRules::kV032) {
        chunks = LoadWindowChunks(rules, end);
      }
      needed.begin = needed.end - chunks;
    }
    needed.begin = std::max(needed.begin, question_.local_tokens / rules.tokens_per_chunk);
    for (int64_t chunk = needed.begin; chunk < needed.end; ++chunk) {
      if (answers_.being_loaded(group, chunk)) return true;
    }
  }
  return false;
}

std::optional<int64_t> Lookup::CompleteTokens() {
  while (next_ != Pass::kNone) {
    if (!RunPass(std::exchange(next_, Pass::kNone))) return 0;
  }
  if (deferred_ || WaitsForAnotherLoad(gain_)) return std::nullopt;
  return gain_;
}

// True if every group has the chunk between `end` and a boundary in the next block. Mamba groups in
// kAlign mode are not queried. `waits` is set if the chunk is present, or will be present, but
// cannot be loaded yet.
bool Lookup::HasBridge(int64_t end, bool& waits) const {
  const int64_t chunk = end / layout_.groups[0].tokens_per_chunk;
  for (size_t group = 0; group < layout_.groups.size(); ++group) {
    if (layout_.groups[group].requires_cow_source) continue;
    const LookupResult result = answers_.chunk(group, chunk);
    if (result == LookupResult::kMiss) return false;
    waits |= result != LookupResult::kHit;
    waits |= answers_.being_loaded && answers_.being_loaded(group, chunk);
  }
  return true;
}

// The last boundary that can be a hit. Later boundaries are not queried.
int64_t Lookup::LastBoundary(int64_t end, int64_t margin) const {
  const int64_t block = layout_.groups[0].tokens_per_block;
  // A tail contains the state that the draft head reads. The tail may therefore lie in the block of
  // the chunk that was dropped for the draft head.
  int64_t last = std::min(question_.prompt_tokens - 1, end + (margin > 0 ? 2 : 1) * block - 1);
  last = std::min(last, question_.num_hashes * layout_.tokens_per_hash - margin);
  if (question_.max_load_tokens) {
    const int64_t loaded = std::min(*question_.max_load_tokens, question_.num_tokens);
    last = std::min(last, question_.local_tokens + loaded);
  }
  return last;
}

// Handles a prompt that ends inside a block: finds the highest boundary that every group has.
OffloadAnswer Lookup::WithTail(int64_t complete) {
  const int64_t hash_block_size = layout_.tokens_per_hash;
  const int64_t block = layout_.groups[0].tokens_per_block;
  const int64_t end = question_.local_tokens + complete;
  int64_t margin = 0;
  for (const OffloadGroup& group : layout_.groups) margin = std::max(margin, group.tail_margin);
  int64_t last = LastBoundary(end, margin);
  const int64_t bridge = (end / block + 1) * block;
  bool bridge_waits = false;
  const bool checks_bridge = !layout_.compatible || layout_.rules >= EngineRules::kV033;
  if (checks_bridge && last >= bridge && !HasBridge(end, bridge_waits))
    last = bridge - hash_block_size;
  bool pending = layout_.compatible && bridge_waits;
  for (int64_t boundary = last / hash_block_size * hash_block_size; boundary > end;
       boundary -= hash_block_size) {
    bool missing = false;
    bool waits = boundary >= bridge && bridge_waits;
    for (size_t group = 0; group < layout_.groups.size() && !missing; ++group) {
      const LookupResult result =
          answers_.tail(group, boundary + layout_.groups[group].tail_margin);
      missing = result == LookupResult::kMiss;
      waits |= result == LookupResult::kPending || result == LookupResult::kRetry;
    }
    // vLLM waits for a pending boundary of one group even if another group does not have this
    // boundary.
    pending |= waits && (layout_.compatible || !missing);
    if (!missing && !waits) return {boundary - question_.local_tokens, boundary};
  }
  if (pending && complete == 0) return {};
  return {complete, std::nullopt};
}

OffloadAnswer Lookup::Run() {
  const std::optional<int64_t> complete = CompleteTokens();
  if (!complete || !layout_.supports_partial_tail || !answers_.tail)
    return {complete, std::nullopt};
  return WithTail(*complete);
}

}  // namespace

std::optional<int64_t> ScanPrefix(int64_t chunks, const ChunkAnswer& answer) {
  bool deferred = false;
  int64_t count = 0;
  for (int64_t i = 0; i < chunks; ++i) {
    const LookupResult result = answer(i);
    if (result == LookupResult::kMiss) break;
    if (result != LookupResult::kHit) deferred = true;
    if (result != LookupResult::kRetry) ++count;
  }
  if (deferred) return std::nullopt;
  return count;
}

std::optional<int64_t> ScanWindow(int64_t chunks, int64_t required, const ChunkAnswer& answer) {
  bool deferred = false;
  int64_t run = 0;
  int64_t i = chunks;
  while (i > 0 && run < required) {
    const LookupResult result = answer(--i);
    const bool present = result == LookupResult::kHit || result == LookupResult::kPending;
    run = present ? run + 1 : 0;
    if (result == LookupResult::kPending || result == LookupResult::kRetry) deferred = true;
  }
  if (deferred) return std::nullopt;
  return run == required ? i + required : run;
}

std::optional<int64_t> ScanLoadWindow(int64_t chunks, int64_t required, int64_t required_at_end,
                                      const ChunkAnswer& answer) {
  bool retry = false;
  bool pending = false;  // a chunk of the run is pending
  int64_t run = 0;
  int64_t needed = required_at_end;
  int64_t i = chunks;
  while (i > 0 && run < needed) {
    const LookupResult result = answer(--i);
    if (result == LookupResult::kHit || result == LookupResult::kPending) {
      ++run;
      pending |= result == LookupResult::kPending;
      continue;
    }
    retry |= result == LookupResult::kRetry;
    pending = false;
    run = 0;
    needed = required;
  }
  if (pending || retry) return std::nullopt;
  return run == needed ? i + needed : run;
}

int64_t FirstTouchedChunk(const OffloadGroup& group, int64_t hit_chunks) {
  return group.window_chunks ? std::max<int64_t>(0, hit_chunks - *group.window_chunks) : 0;
}

OffloadAnswer LookupOffloaded(const OffloadLayout& layout, const OffloadQuestion& question,
                              const OffloadAnswers& answers) {
  return Lookup(layout, question, answers).Run();
}

}  // namespace kvcast
