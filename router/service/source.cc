// SPDX-License-Identifier: Apache-2.0
#include "router/service/source.h"

#include <utility>
#include <variant>

namespace kvcast::router {
namespace {

// An event of a kind that does not exist yet costs no truth; one that is known and broken may.
bool LosesTruth(const DecodeCounts& counts) {
  return counts.rejected_total() > counts.rejected[static_cast<size_t>(Reject::kUnknownEvent)];
}

void AddCounts(const DecodeCounts& from, DecodeCounts& to) {
  to.decoded += from.decoded;
  to.unknown_fields += from.unknown_fields;
  for (size_t i = 0; i < kRejectReasons; ++i) to.rejected[i] += from.rejected[i];
}

SchemeDetectorConfig DetectorConfig(const RouterSource& source) {
  SchemeDetectorConfig config;
  config.algorithm = source.algorithm;
  config.seed = source.hash_seed;
  config.none_hash = source.none_hash;
  config.hash_block_size = source.worker.hash_block_size;
  config.seeds.insert(config.seeds.end(), source.candidate_seeds.begin(),
                      source.candidate_seeds.end());
  config.none_hashes = source.candidate_none_hashes;
  return config;
}

TokenKeysConfig TokenModeOf(const RouterSource& source) {
  TokenKeysConfig config = source.token_mode;
  config.repeats_are_refreshes |= source.format == EventFormat::kMooncake;
  return config;
}

Result<HashScheme> AssumedScheme(const RouterSource& source) {
  const HashAlgorithm algorithm = source.algorithm.value_or(HashAlgorithm::kSha256);
  const auto hasher = source.none_hash.empty()
                          ? BlockHasher::FromSeed(
                                algorithm, source.hash_seed.value_or(std::string(kDefaultHashSeed)))
                          : BlockHasher::FromNoneHash(algorithm, source.none_hash);
  if (!hasher.ok()) return hasher.status();
  const auto none_hash = hasher->none_hash().bytes();
  return HashScheme{algorithm, {none_hash.begin(), none_hash.end()}, EventHashForm::kInt64};
}

}  // namespace

Result<std::unique_ptr<Source>> Source::Create(WorkerId id, const RouterSource& config,
                                               PrefixIndex& index) {
  if (config.worker.name.empty()) {
    return Status(StatusCode::kInvalidArgument, "source: the name is empty");
  }
  Result<HashScheme> assumed = AssumedScheme(config);
  if (!assumed.ok()) return assumed.status();
  Result<SchemeDetector> detector = SchemeDetector::Create(DetectorConfig(config));
  if (!detector.ok()) return detector.status();
  WorkerConfig worker = config.worker;
  worker.digests = !config.replay_endpoint.empty();
  if (Status status = index.AddWorker(id, worker); !status.ok()) {
    return Status(status.code(), config.worker.name + ": " + status.message());
  }
  return std::unique_ptr<Source>(
      new Source(id, config, index, std::move(detector).value(), std::move(assumed).value()));
}

Source::Source(WorkerId id, const RouterSource& config, PrefixIndex& index, SchemeDetector detector,
               HashScheme assumed)
    : id_(id),
      name_(config.worker.name),
      model_(config.model),
      index_(index),
      replica_(id, index),
      gpu_blocks_(config.gpu_blocks),
      unit_registered_(config.worker.hash_block_size > 0),
      assumed_(std::move(assumed)),
      detector_(std::move(detector)),
      tokens_(WorkerId(id.value | kTokenWorkerBit), config.worker, TokenModeOf(config),
              /*await_verdict=*/config.format == EventFormat::kEngine, index),
      verdict_(detector_.verdict()) {
  if (config.format == EventFormat::kMooncake) mooncake_.emplace(config.mooncake);
}

// False: no batch.
bool Source::Decode(std::span<const uint8_t> payload, DecodeCounts& counts) {
  if (!mooncake_) {
    return DecodeBatch(payload, WireLimits(), {.merge_removes = true}, batch_, counts).ok();
  }
  const uint64_t bad = mooncake_->counters().bad_events;
  Result<EventBatch> batch = mooncake_->Decode(payload);
  if (!batch.ok()) {
    mooncake_->Restart();
    return false;
  }
  batch_ = std::move(batch).value();
  counts.decoded = batch_.events.size();
  counts.rejected[static_cast<size_t>(Reject::kBadValue)] = mooncake_->counters().bad_events - bad;
  return true;
}

BatchResult Source::OnBatch(std::span<const uint8_t> payload, Seq seq) {
  DecodeCounts counts;
  const bool decoded = Decode(payload, counts);
  {
    MutexLock lock(mutex_);
    AddCounts(counts, counters_.decode);
    if (!decoded) ++counters_.undecodable_batches;
    if (!decoded) tally_.Clear();
  }
  if (!decoded || LosesTruth(counts)) inexact_ = true;
  if (!decoded) {
    // Removes may have been among it: what stays could be promised for ever.
    replica_.Reset(/*restart=*/false);
    tokens_.OnLoss();
    return BatchResult::kUndecodable;
  }
  NoteHashForm();
  detector_.Observe(batch_);
  NoteScheme();
  const uint64_t unknown_removes = index_.counters(id_).unknown_removes;
  const std::vector<size_t> left_out = replica_.Apply(seq.value, batch_);
  tokens_.OnVerdict(detector_.verdict());
  tokens_.OnBatch(batch_);
  {
    MutexLock lock(mutex_);
    last_batch_ts_ = batch_.ts;
    tally_.Apply(batch_, left_out);
  }
  if (observer_) observer_({seq, batch_, left_out});
  if (replica_.Exceeds(gpu_blocks_)) return BatchResult::kRefuted;
  if (LosesTruth(counts)) return BatchResult::kDoubtful;
  const bool possible = index_.counters(id_).unknown_removes == unknown_removes;
  return possible ? BatchResult::kApplied : BatchResult::kImpossible;
}

bool Source::NoteReuse(int64_t promised_tokens, int64_t cached_tokens) {
  MutexLock lock(mutex_);
  return feedback_.Note(promised_tokens, cached_tokens);
}

// A snapshot has no tokens: token mode learns anew.
bool Source::CommitSnapshot(const PublisherStatus& status) {
  if (!replica_.CommitSnapshot(status)) return false;
  inexact_ = false;
  tokens_.OnLoss();
  BlockTally held;
  index_.ForEachResidency(id_, [&held](Tier tier, uint8_t group, const BlockHash&,
                                       uint32_t copies) { held.Hold(tier, group, copies); });
  MutexLock lock(mutex_);
  tally_.Replace(held);
  return true;
}

void Source::OnReset(ResetReason reason) {
  {
    MutexLock lock(mutex_);
    ++(reason == ResetReason::kRestart ? counters_.restarts : counters_.losses);
    tally_.Clear();
  }
  if (mooncake_) mooncake_->Restart();
  if (reason == ResetReason::kRestart) {
    replica_.Reset(/*restart=*/true);
    inexact_ = false;
    detector_.Restart();
    tokens_.OnRestart();
    NoteScheme();
  } else {
    replica_.Reset(/*restart=*/false);
    tokens_.OnLoss();
  }
}

void Source::NoteHashForm() {
  for (const Event& event : batch_.events) {
    const auto* stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr || stored->block_hashes.empty()) continue;
    form_ = stored->block_hashes[0].is_bytes() ? EventHashForm::kBytes : EventHashForm::kInt64;
    return;
  }
}

// Before the batch is applied: its blocks may be the first whose unit is not their size.
void Source::NoteScheme() {
  const SchemeVerdict& now = detector_.verdict();
  bool changed;
  {
    MutexLock lock(mutex_);
    scheme_counters_ = detector_.counters();
    changed = verdict_ != now;
    if (changed) verdict_ = now;
  }
  if (changed && now.scheme) LearnUnit(now.scheme->hash_block_size);
}

void Source::LearnUnit(int64_t unit) {
  if (index_.LearnHashBlockSize(id_, unit).ok()) return;
  // Blocks that the new unit does not divide are those of an engine that is gone.
  if (!unit_registered_) index_.RestartWorker(id_);
  (void)index_.LearnHashBlockSize(id_, unit);
}

HashScheme Source::scheme() const {
  MutexLock lock(mutex_);
  HashScheme scheme = assumed_;
  if (verdict_.scheme && !verdict_.scheme->none_hash.empty()) {
    scheme.algorithm = verdict_.scheme->algorithm;
    scheme.none_hash = verdict_.scheme->none_hash;
  }
  scheme.form = form_;
  return scheme;
}

SchemeVerdict Source::verdict() const {
  MutexLock lock(mutex_);
  return verdict_;
}

SchemeCounters Source::scheme_counters() const {
  MutexLock lock(mutex_);
  return scheme_counters_;
}

SourceCounters Source::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

std::vector<GroupTally> Source::group_tallies() const {
  MutexLock lock(mutex_);
  return tally_.groups();
}

std::optional<double> Source::last_batch_ts() const {
  MutexLock lock(mutex_);
  return last_batch_ts_;
}

SourceState Source::State(SourceState stream) const {
  return stream == SourceState::kSynced && inexact_ ? SourceState::kSuspect : stream;
}

}  // namespace kvcast::router
