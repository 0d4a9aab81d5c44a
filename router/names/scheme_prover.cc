// SPDX-License-Identifier: Apache-2.0
#include "kvcast/router/scheme_prover.h"

#include <optional>
#include <utility>
#include <variant>

#include "kvcast/core/tier.h"
#include "kvcast/hash/chain_challenge.h"
#include "src/base/mutex.h"

namespace kvcast {
namespace {

// The properties of the engine's stores that are not part of the scheme. Sizes of 0: no store was
// seen.
struct StoreShape {
  int64_t hash_block_size = 0;  // of the scheme when the stores were seen
  int64_t block_size = 0;       // of the smallest blocks
  EventHashForm event_form = EventHashForm::kInt64;

  void See(const BlockStored& store) {
    if (store.block_hashes.empty() || TierOf(store.medium) != Tier::kGpu) return;
    if (store.block_size <= 0 || store.block_size % hash_block_size != 0) return;
    event_form = store.block_hashes[0].is_bytes() ? EventHashForm::kBytes : EventHashForm::kInt64;
    if (block_size == 0 || store.block_size < block_size) block_size = store.block_size;
  }
};

// Returns the form of the store of an answer. nullopt: the form is not proven, or it contains the
// path of an adapter, which no event shows.
std::optional<ChainForm> AnswerForm(const SchemeVerdict& verdict, const HashInputs& inputs) {
  const std::optional<ChainForm> form = ProvenForm(verdict, inputs);
  const bool needs_path = form && form->extra_keys == ExtraKeyScheme::kTagged;
  if (needs_path && !inputs.lora_name.empty()) return std::nullopt;
  return form;
}

}  // namespace

class SchemeProver::Impl {
 public:
  explicit Impl(SchemeDetector detector) : detector_(std::move(detector)) {}

  void Observe(const EventBatch* batch) {
    const MutexLock lock(mutex_);
    if (batch == nullptr) {
      detector_.Restart();
      return;
    }
    for (const Event& event : batch->events) {
      detector_.Observe(event);
      if (const auto* store = std::get_if<BlockStored>(&event)) NoteShape(*store);
    }
  }

  EventBatch Answer(uint64_t nonce) const {
    SchemeVerdict verdict;
    StoreShape shape;
    {
      const MutexLock lock(mutex_);
      verdict = detector_.verdict();
      shape = shape_;
    }
    EventBatch answer;
    const bool proven = verdict.state == SchemeState::kMatched && ProvenForm(verdict, {});
    if (!proven || shape.hash_block_size != verdict.scheme->hash_block_size) return answer;
    auto hasher = BlockHasher::FromNoneHash(verdict.scheme->algorithm, verdict.scheme->none_hash);
    if (!hasher.ok() || shape.block_size == 0) return answer;
    for (const HashInputs& inputs : ChallengeInputs(nonce, shape.hash_block_size)) {
      const auto form = AnswerForm(verdict, inputs);
      if (!form) continue;
      const int64_t size = inputs.empty() ? shape.block_size : shape.hash_block_size;
      answer.events.emplace_back(ChallengeStore(
          nonce, size, inputs,
          {.hash_block_size = shape.hash_block_size, .form = *form, .event_form = shape.event_form},
          *hasher));
    }
    return answer;
  }

 private:
  void NoteShape(const BlockStored& store) KV_REQUIRES(mutex_) {
    const auto& scheme = detector_.verdict().scheme;
    if (!scheme) return;
    if (shape_.hash_block_size != scheme->hash_block_size) {
      shape_ = {.hash_block_size = scheme->hash_block_size};
    }
    shape_.See(store);
  }

  mutable Mutex mutex_;
  SchemeDetector detector_ KV_GUARDED_BY(mutex_);
  StoreShape shape_ KV_GUARDED_BY(mutex_);
};

Result<std::unique_ptr<SchemeProver>> SchemeProver::Create(const SchemeDetectorConfig& config) {
  auto detector = SchemeDetector::Create(config);
  if (!detector.ok()) return detector.status();
  return std::unique_ptr<SchemeProver>(
      new SchemeProver(std::make_unique<Impl>(std::move(detector).value())));
}

SchemeProver::SchemeProver(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SchemeProver::~SchemeProver() = default;

void SchemeProver::Observe(const EventBatch* batch) { impl_->Observe(batch); }
EventBatch SchemeProver::Answer(uint64_t nonce) const { return impl_->Answer(nonce); }

}  // namespace kvcast
