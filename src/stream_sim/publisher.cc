// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/publisher.h"

#include <array>
#include <iterator>
#include <utility>

#include "src/base/check.h"
#include "src/residency/extension.h"

namespace kvcast::sim {
namespace {

constexpr uint64_t kLives = 1000;
constexpr uint64_t kStamps = 1000000;
// Seconds between two stamps. A heartbeat adds the time since the latest stamp. A run takes less
// time than kStampS, so a heartbeat stays below the next stamp.
constexpr uint64_t kStampS = 10000;
constexpr std::array kDialects = {Dialect::kVllm8,  Dialect::kVllm9,  Dialect::kVllm10,
                                  Dialect::kVllm11, Dialect::kVllm12, Dialect::kKvcast1};
constexpr const char* kNotUtf8 = "\xff";

// Returns an event that cannot be encoded. The event has no blocks. `known`: the fields that the
// publisher's state needs can be encoded.
Event Unencodable(bool known) {
  BlockStored event;
  event.token_ids.emplace();
  (known ? event.lora_name : event.medium) = kNotUtf8;
  return event;
}

// A store whose hash is the nonce. The time stamp names the publisher and its life.
EventBatch AnswerOf(uint64_t nonce, double ts) {
  BlockStored event;
  event.block_hashes = {BlockHash::FromUnsigned(nonce)};
  event.token_ids.emplace();
  event.block_size = 16;
  EventBatch batch;
  batch.ts = ts;
  batch.events = {event};
  return batch;
}

}  // namespace

Origin OriginOf(double ts) {
  const uint64_t life = static_cast<uint64_t>(ts) / kStampS / kStamps;
  return {static_cast<int>(life / kLives), static_cast<int>(life % kLives)};
}

SimPublisher::SimPublisher(uint64_t seed, int number, const Agenda& agenda,
                           stream::ReplyChannel& channel, Record& record)
    : seed_(seed),
      number_(number),
      agenda_(agenda),
      channel_(channel),
      record_(record),
      random_(seed, 0x9B000 + static_cast<uint64_t>(number)) {
  Restart();
}

void SimPublisher::Restart(bool large_ring, bool same_kind) {
  // Models rolling upgrades: most lives support KVX1 if and only if the previous life did.
  const bool keeps_kind = same_kind || (!lives_.empty() && random_.Percent(85));
  if (!keeps_kind) extended_ = random_.Percent(60);
  lives_.emplace_back();
  KV_CHECK(lives_.size() < kLives);
  engine_ = std::make_unique<Engine>(seed_, number_, life());
  topic_in_replies_ = random_.Percent(70);
  tells_state_ = extended_;
  stamps_ = unsent_ = 0;
  pending_ = {};
  replays_.clear();
  quiet_since_ms_ = agenda_.now_ms();
  scheduler_.reset();
  config_ = DrawConfig(large_ring);
  core_ =
      std::make_unique<stream::PublisherCore>(config_, [this] { return agenda_.now_ms() * 1000; });
  if (extended_) core_->KeepState({Mix(random_.Next()), static_cast<uint64_t>(life())});
  credit_ = std::make_shared<bool>(false);
  stream::ReplyChannel& replies = *this;
  scheduler_ = std::make_unique<stream::ReplayScheduler>(
      DrawLimits(), core_->ring(), core_->state(), replies, [credit = credit_] { *credit = true; });
}

PublisherConfig SimPublisher::DrawConfig(bool large_ring) {
  PublisherConfig config;
  config.dialect = kDialects[static_cast<size_t>(random_.Roll(kDialects.size()))];
  config.ring_batches =
      static_cast<size_t>(random_.Percent(60) || large_ring ? 100000 : random_.Between(2, 64));
  config.ring_bytes = SIZE_MAX;
  // The publisher of vLLM sends no heartbeats.
  config.heartbeat_ms = extended_ || random_.Percent(20) ? 1000 : 0;
  config.flush_ms = random_.Percent(10) ? 0 : random_.Between(10, 300);
  answers_challenges_ = random_.Percent(70);
  if (answers_challenges_) {
    config.answer_challenge = [ts = Stamp(0)](uint64_t nonce) { return AnswerOf(nonce, ts); };
  }
  return config;
}

stream::ReplayLimits SimPublisher::DrawLimits() {
  stream::ReplayLimits limits;
  if (random_.Percent(20)) limits.rate.requests = 0.2;
  if (random_.Percent(20)) limits.rate.bytes = static_cast<double>(random_.Between(15, 100)) * 1e3;
  if (random_.Percent(30)) limits.credit.replies = static_cast<size_t>(random_.Between(2, 32));
  if (random_.Percent(70)) limits.turn_replies = static_cast<size_t>(random_.Between(1, 16));
  return limits;
}

double SimPublisher::Stamp(uint64_t stamp) const {
  const uint64_t life =
      static_cast<uint64_t>(number_) * kLives + static_cast<uint64_t>(this->life());
  return static_cast<double>((life * kStamps + stamp) * kStampS);
}

double SimPublisher::NextStamp() {
  KV_CHECK(stamps_ + 1 < kStamps);
  return Stamp(++stamps_);
}

void SimPublisher::PublishStep() {
  EventBatch batch;
  batch.events = engine_->Step();
  const int64_t roll = random_.Roll(100);
  if (roll < 3) return Add(std::move(batch.events));
  if (roll < 5) return PublishBytes(std::move(batch));
  if (roll < 6) Flush();
  if (roll < 12 && !batch.events.empty()) {
    Add({batch.events.front()});
    batch.events.erase(batch.events.begin());
  }
  Publish(std::move(batch));
}

uint64_t SimPublisher::PublishBatch() {
  EventBatch batch;
  batch.events = engine_->Step();
  return Publish(std::move(batch));
}

void SimPublisher::PublishClear() {
  EventBatch batch;
  batch.events = engine_->Step();
  batch.events.push_back(engine_->Clear());
  if (random_.Percent(50)) return Add(std::move(batch.events));
  Publish(std::move(batch));
}

void SimPublisher::Burn() {
  EventBatch batch;
  batch.events = engine_->Step();
  const bool known = random_.Percent(85);
  tells_state_ = tells_state_ && known;
  if (!known && random_.Percent(50)) {
    NumberPending();
    Number(Published::Kind::kRefused, batch);
    if (core_->PublishPayload({}).ok())
      record_.Fail("Ordered", "PublishPayload accepted an empty payload");
    return CheckNumbers();
  }
  batch.ts = NextStamp();
  lives_.back().NoteTime(batch.ts, agenda_.now_ms());
  Number(Published::Kind::kRefused, WithPending(batch));
  batch.events.push_back(Unencodable(known));
  if (core_->Publish(std::move(batch)).ok())
    record_.Fail("Ordered", "Publish accepted a batch that cannot be encoded");
  CheckNumbers();
}

EventBatch SimPublisher::WithPending(EventBatch batch) {
  std::vector<Event> events = std::exchange(pending_, {}).events;
  events.insert(events.end(), batch.events.begin(), batch.events.end());
  batch.events = std::move(events);
  return batch;
}

void SimPublisher::Add(std::vector<Event> events) {
  if (pending_.events.empty()) pending_.since_ms = agenda_.now_ms();
  if (!events.empty()) pending_.ts = NextStamp();
  pending_.events.insert(pending_.events.end(), events.begin(), events.end());
  core_->Add(std::move(events), pending_.ts);
  CheckNumbers();
}

uint64_t SimPublisher::Publish(EventBatch batch) {
  batch.ts = NextStamp();
  lives_.back().NoteTime(batch.ts, agenda_.now_ms());
  const uint64_t number = next_seq();
  Number(Published::Kind::kBatch, WithPending(batch));
  const Result<Seq> seq = core_->Publish(std::move(batch));
  if (!seq.ok() || seq->value != number)
    record_.Fail("Ordered", "Publish failed, or returned another sequence number");
  CheckNumbers();
  return number;
}

void SimPublisher::PublishBytes(EventBatch batch) {
  NumberPending();
  batch.ts = NextStamp();
  const uint64_t number = next_seq();
  Number(Published::Kind::kBatch, batch);
  std::vector<uint8_t> payload;
  KV_CHECK(EncodeBatch(batch, config_.dialect, payload).ok());
  const Result<Seq> seq = core_->PublishPayload(payload);
  if (!seq.ok() || seq->value != number)
    record_.Fail("Ordered", "PublishPayload failed, or returned another sequence number");
  CheckNumbers();
}

void SimPublisher::Flush() {
  NumberPending();
  if (!core_->Flush().ok()) record_.Fail("Ordered", "Flush refused the pending events");
  CheckNumbers();
}

void SimPublisher::Number(Published::Kind kind, const EventBatch& batch) {
  lives_.back().Number(kind, batch, agenda_.now_ms());
  quiet_since_ms_.reset();
  overruns_ += next_seq() >= config_.ring_batches ? 1 : 0;
}

// The pending events get a batch of their own.
void SimPublisher::NumberPending() {
  if (pending_.events.empty()) return;
  EventBatch batch;
  batch.ts = pending_.ts;
  lives_.back().NoteTime(batch.ts, agenda_.now_ms());
  Number(Published::Kind::kBatch, WithPending(std::move(batch)));
}

void SimPublisher::Tick() {
  const int64_t waited_ms = agenda_.now_ms() - pending_.since_ms;
  if (config_.flush_ms > 0 && waited_ms >= config_.flush_ms) NumberPending();
  core_->Tick();
  CheckHeartbeat();
  CheckNumbers();
}

void SimPublisher::CheckHeartbeat() {
  const bool sent = core_->ring().next_seq() > next_seq();
  if (!quiet_since_ms_) quiet_since_ms_ = agenda_.now_ms();
  const bool is_due = config_.heartbeat_ms > 0 && lives_.back().has_time() &&
                      agenda_.now_ms() - *quiet_since_ms_ >= config_.heartbeat_ms;
  if (sent != is_due) {
    record_.Fail("Prompt", sent ? "a heartbeat was sent too early" : "a heartbeat is missing");
  }
  if (!sent) return;
  Number(Published::Kind::kHeartbeat, {});
  ++record_.reached["heartbeats"];
}

void SimPublisher::CheckNumbers() {
  const uint64_t used = core_->ring().next_seq();
  if (used == next_seq()) return;
  record_.Fail("Ordered", std::to_string(used) + " sequence numbers are used instead of " +
                              std::to_string(next_seq()));
}

std::vector<RingEntry> SimPublisher::TakeUnsent() {
  std::vector<RingEntry> entries;
  while (core_->ring().TakeUnsent(SIZE_MAX, entries)) {
  }
  for (const RingEntry& entry : entries) {
    if (lives_.back().IsRefused(entry.seq)) record_.Fail("Honest", "a refused batch is sent");
    CheckSkipped(unsent_, entry.seq, "not sent");
    unsent_ = entry.seq + 1;
  }
  CheckSkipped(unsent_, next_seq(), "not sent");
  unsent_ = next_seq();
  return entries;
}

// The publisher may skip only refused batches, and batches that have left the ring.
void SimPublisher::CheckSkipped(uint64_t begin, uint64_t end, const char* problem) {
  for (uint64_t seq = begin; seq < end; ++seq) {
    if (lives_.back().IsRefused(seq) || seq < core_->ring().first_held()) continue;
    record_.Fail("Prompt", "batch " + std::to_string(seq) + " is " + problem);
  }
}

void SimPublisher::Ask(const std::string& client, Frame start) {
  const auto asked = residency::ParseRequest(start);
  const bool replay = asked && extended_ ? asked->verb == residency::Verb::kReplay
                                         : start.size() == sizeof(uint64_t);
  const uint64_t first = asked && extended_ ? asked->argument : stream::ParseStart(start);
  if (replay) replays_[client] = {first, next_seq()};
  scheduler_->AddRequest({reinterpret_cast<const uint8_t*>(client.data()), client.size()}, start);
}

bool SimPublisher::Send(const std::string& client, uint64_t seq, Payload payload,
                        std::shared_ptr<void> charge) {
  if (const auto replay = replays_.find(client); replay != replays_.end()) {
    auto& [next, end] = replay->second;
    const bool ends = seq == stream::kEndSeq;
    CheckSkipped(next, ends ? end : seq, "missing from an answer");
    next = seq + 1;
    if (ends) replays_.erase(replay);
  }
  return channel_.Send(client, seq, std::move(payload), std::move(charge));
}

int64_t SimPublisher::Serve() {
  const int64_t now_us = agenda_.now_ms() * 1000;
  if (std::exchange(*credit_, false)) {
    scheduler_->Resume();
    ++record_.reached["replies that waited for their reader"];
  }
  const uint64_t delays = scheduler_->counters().delays;
  scheduler_->Serve(now_us);
  const uint64_t more = scheduler_->counters().delays - delays;
  if (more > 0) record_.reached["replies that waited for their rate"] += more;
  return scheduler_->WaitMs(now_us);
}

}  // namespace kvcast::sim
