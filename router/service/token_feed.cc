// SPDX-License-Identifier: Apache-2.0
#include "router/service/token_feed.h"

#include <utility>
#include <variant>

namespace kvcast::router {
namespace {

TokenKeysConfig Complete(TokenKeysConfig config, const WorkerConfig& registration) {
  config.groups = registration.groups;
  config.hash_block_size = registration.hash_block_size;
  return config;
}

}  // namespace

std::string WhyShort(const TokenFeedStatus& status) {
  if (status.late) return "token mode: what was stored before it began is not known";
  if (status.keys.refused_hashes > 0) return "token mode: no room for all hashes";
  if (status.keys.unresolved_gpu == 0) return "";
  std::string reasons;
  for (int i = 0; i < kUnresolvedReasons; ++i) {
    const uint64_t held = status.keys.unresolved_held[static_cast<size_t>(i)];
    if (held == 0) continue;
    reasons += (reasons.empty() ? "" : ", ") + std::to_string(held) + " " +
               std::string(UnresolvedName(static_cast<Unresolved>(i)));
  }
  return "token mode: blocks whose content is not known: " + reasons;
}

TokenFeed::TokenFeed(WorkerId worker, const WorkerConfig& registration, TokenKeysConfig config,
                     bool await_verdict, PrefixIndex& index)
    : worker_(worker),
      registration_(registration),
      config_(Complete(std::move(config), registration)),
      await_verdict_(await_verdict),
      index_(index),
      keys_(TokenKeys(config_)) {}

void TokenFeed::OnVerdict(const SchemeVerdict& verdict) {
  if (verdict_ == verdict) return;
  verdict_ = verdict;
  if (verdict.state == SchemeState::kMatched || verdict.scheme) {
    if (std::exchange(fed_, false)) index_.RemoveWorker(worker_);
    keys_.reset();
    now_ = {};
    NoteStatus();
  } else if (!keys_) {
    keys_.emplace(config_);
    now_.late = true;
  }
}

// Pairs of tokens are hashed by no known scheme, and therefore never tested.
bool TokenFeed::ShouldServe() const {
  if (!keys_ || keys_->counters().resolved == 0) return false;
  return !await_verdict_ || verdict_.state != SchemeState::kUnknown || now_.tokens_per_position > 1;
}

void TokenFeed::OnBatch(const EventBatch& batch) {
  if (!keys_) return;
  for (const Event& event : batch.events) {
    const auto* stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr || !stored->token_ids || stored->token_ids->empty()) continue;
    now_.tokens_per_position = stored->tokens_per_position == 2 ? 2 : 1;
  }
  const EventBatch rekeyed = keys_->Rekey(batch);
  if (fed_) {
    keys_->NoteLeftOut(index_.Apply(worker_, rekeyed));
  } else if (ShouldServe()) {
    Serve();
  }
  NoteStatus();
}

void TokenFeed::Serve() {
  if (!index_.AddWorker(worker_, registration_).ok()) return;
  fed_ = true;
  // Which stores were reports of hits, only the index could have said.
  if (registration_.hit_reports == HitReports::kExpected) {
    now_.late = true;
    ForgetHeld();
  }
  index_.Apply(worker_, keys_->Snapshot());
}

void TokenFeed::ForgetHeld() {
  EventBatch clears;
  for (const char* medium : {kMediumGpu, kMediumCpu, kMediumStorage}) {
    clears.events.emplace_back(AllBlocksCleared{.medium = medium});
  }
  keys_->Rekey(clears);
}

void TokenFeed::OnLoss() {
  if (fed_) index_.ClearWorker(worker_);
  if (keys_) ForgetHeld();
  NoteStatus();
}

void TokenFeed::OnRestart() {
  if (std::exchange(fed_, false)) index_.RemoveWorker(worker_);
  keys_.emplace(config_);
  verdict_ = {};
  now_ = {};
  NoteStatus();
}

void TokenFeed::NoteStatus() {
  now_.serving = fed_;
  if (keys_) now_.keys = keys_->counters();
  MutexLock lock(mutex_);
  status_ = now_;
}

TokenFeedStatus TokenFeed::status() const {
  MutexLock lock(mutex_);
  return status_;
}

}  // namespace kvcast::router
