// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/publisher.h"

#include <array>
#include <utility>

#include "src/base/check.h"
#include "src/residency/mirror.h"

namespace kvcast::sim {
namespace {

constexpr uint64_t kLives = 1000;
constexpr uint64_t kSeqs = 1000000;
constexpr std::array kDialects = {Dialect::kVllm8,  Dialect::kVllm9,  Dialect::kVllm10,
                                  Dialect::kVllm11, Dialect::kVllm12, Dialect::kKvcast1};

}  // namespace

double EncodeTag(const Tag& tag) {
  const uint64_t life =
      static_cast<uint64_t>(tag.publisher) * kLives + static_cast<uint64_t>(tag.life);
  return static_cast<double>(life * kSeqs + tag.seq);
}

Tag DecodeTag(double ts) {
  const auto value = static_cast<uint64_t>(ts);
  const uint64_t life = value / kSeqs;
  return {static_cast<int>(life / kLives), static_cast<int>(life % kLives), value % kSeqs};
}

SimPublisher::SimPublisher(uint64_t seed, int number)
    : seed_(seed), number_(number), random_(seed, 0x9B000 + static_cast<uint64_t>(number)) {
  Restart();
}

void SimPublisher::Restart(bool large_ring, bool same_kind) {
  oracles_.emplace_back();
  KV_CHECK(oracles_.size() < kLives);
  engine_ = std::make_unique<Engine>(seed_, number_, life());
  visible_end_ = 0;
  held_.clear();
  responder_.reset();
  state_.reset();
  // Rolling upgrades: mostly a life is of the kind of the one before.
  const bool keep = same_kind || (ring_batches_ > 0 && random_.Percent(85));
  const bool extended = keep ? ring_ != nullptr : random_.Percent(60);
  topic_in_replies_ = random_.Percent(70);
  dialect_ = kDialects[static_cast<size_t>(random_.Roll(kDialects.size()))];
  ring_batches_ =
      static_cast<size_t>(random_.Percent(60) || large_ring ? 100000 : random_.Between(1, 64));
  ring_.reset();
  tells_state_ = extended;
  if (!extended) return;
  ring_ = std::make_unique<stream::ReplayRing>(ring_batches_, SIZE_MAX, dialect_);
  const residency::Epoch epoch{Mix(random_.Next()), static_cast<uint64_t>(life())};
  state_ = std::make_unique<stream::PublisherState>(epoch, *ring_, dialect_, 0);
  responder_ = std::make_unique<stream::ReplayResponder>(*ring_, state_.get());
}

RingEntry SimPublisher::PublishStep() {
  EventBatch batch;
  batch.events = engine_->Step();
  return Publish(std::move(batch));
}

RingEntry SimPublisher::PublishClear() {
  EventBatch batch;
  batch.events = engine_->Step();
  batch.events.push_back(engine_->Clear());
  return Publish(std::move(batch));
}

RingEntry SimPublisher::PublishHeartbeat() { return Publish({}); }

RingEntry SimPublisher::Publish(EventBatch batch) {
  const uint64_t seq = next_seq();
  batch.ts = EncodeTag({number_, life(), seq});
  batch.data_parallel_rank = 0;
  std::vector<uint8_t> payload;
  KV_CHECK(EncodeBatch(batch, dialect_, payload).ok());
  oracles_.back().Add(batch);
  visible_end_ = seq + 1;
  RingEntry entry{seq, std::make_shared<const std::vector<uint8_t>>(std::move(payload))};
  if (ring_) {
    KV_CHECK(ring_->Append(std::move(batch)) == seq);
    overruns_ += seq + 1 >= ring_batches_ ? 1 : 0;
    if (random_.Percent(50)) state_->CatchUp();
    return entry;
  }
  held_.push_back(entry);
  if (held_.size() > ring_batches_) {
    held_.pop_front();
    ++overruns_;
  }
  return entry;
}

void SimPublisher::Burn() {
  EventBatch batch;
  batch.events = engine_->Step();
  oracles_.back().Add(batch);
  if (!ring_) return;
  const bool known = random_.Percent(85);
  tells_state_ = tells_state_ && known;
  ring_->AppendRefused(known ? std::optional(residency::MirroredPart(batch)) : std::nullopt);
}

SimPublisher::Serving SimPublisher::Begin(Frame start) {
  if (responder_) return {responder_->Begin(start)};
  return {{.next = stream::ParseStart(start), .end = next_seq()}};
}

std::vector<RingEntry> SimPublisher::Next(Serving& serving, size_t limit) {
  std::vector<RingEntry> replies;
  if (responder_) {
    responder_->Read(serving.answer, limit, replies);
    for (const RingEntry& reply : replies) responder_->Sent(serving.answer, reply);
    return replies;
  }
  for (const RingEntry& entry : held_) {
    if (entry.seq < serving.answer.next || entry.seq >= serving.answer.end) continue;
    if (replies.size() == limit) break;
    replies.push_back(entry);
  }
  if (!replies.empty()) serving.answer.next = replies.back().seq + 1;
  return replies;
}

Payload SimPublisher::EndPayload(const Serving& serving) {
  return responder_ ? responder_->EndPayload(serving.answer) : nullptr;
}

}  // namespace kvcast::sim
