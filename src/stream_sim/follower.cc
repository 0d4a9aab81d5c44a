// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/follower.h"

#include <algorithm>
#include <utility>

#include "src/residency/extension.h"

namespace kvcast::sim {
namespace {

constexpr uint64_t kMaxRequestsPerSecond = 60;

}  // namespace

Follower::Follower(WorkerId worker, const stream::SourceLimits& limits, bool can_replay,
                   const SimPublisher& publisher, PrefixIndex& index, Record& record)
    : worker_(worker),
      limits_(limits),
      can_replay_(can_replay),
      publisher_(publisher),
      index_(index),
      record_(record),
      replica_(std::in_place, worker, index) {}

std::optional<Follower::Saved> Follower::Save() const {
  if (!can_replay_) return std::nullopt;
  auto position = source_->Position();
  if (!position) return std::nullopt;
  if (next_ != position->next_seq) Fail("Honest", "the saved position is not that of the state");
  return Saved{.position = std::move(*position),
               .index = SavedIndex(index_, {worker_}),
               .life = life_,
               .damaged = damaged_,
               .was_damaged = was_damaged_};
}

void Follower::Restart(int64_t now_ms, const Saved* saved) {
  index_.RestartWorker(worker_);
  replica_.emplace(worker_, index_);
  life_ = saved == nullptr ? std::nullopt : saved->life;
  next_ = saved == nullptr ? 0 : saved->position.next_seq;
  damaged_ = saved != nullptr && saved->damaged;
  was_damaged_ = saved != nullptr && saved->was_damaged;
  if (saved != nullptr && !saved->index.Restore(index_, worker_).ok()) {
    Fail("Honest", "the saved state cannot be restored");
  }
  if (saved != nullptr) replica_->Resume(next_, /*left_out=*/false);
  answered_.reset();
  heard_ms_ = now_ms;
  silent_since_connect_ = true;
  repairs_ = false;
  last_state_ = SourceState::kConnecting;
  window_ms_ = now_ms;
  window_requests_ = window_replayed_ = 0;
}

void Follower::BeginSnapshot() {
  repairs_ = false;
  replica_->BeginSnapshot();
}

void Follower::BeginRepair(uint64_t buckets) {
  repairs_ = true;
  replica_->BeginRepair(buckets);
}

bool Follower::AddToSnapshot(std::span<const uint8_t> payload) {
  const HoldingsSum before = SumOf(index_.Digests(worker_));
  const bool added = replica_->AddToSnapshot(payload);
  if (SumOf(index_.Digests(worker_)) != before)
    Fail("Atomic", "the state changed before the snapshot was complete");
  return added;
}

DigestVerdict Follower::Compare(const PublisherStatus& status) {
  const DigestVerdict verdict = replica_->Compare(status);
  if (verdict == DigestVerdict::kUnknown)
    ++record_.reached["audits that could not compare digests"];
  if (verdict == DigestVerdict::kDiffers && !was_damaged_) {
    Fail("Honest", "the digests differ, but no entry was damaged");
  }
  return verdict;
}

void Follower::Fail(const std::string& guarantee, const std::string& what) const {
  record_.Fail(guarantee, "publisher " + std::to_string(worker_.value) + ": " + what);
}

BatchResult Follower::Apply(Seq seq, std::span<const uint8_t> payload) {
  DecodeCounts counts;
  if (!DecodeBatch(payload, WireLimits(), batch_, counts).ok()) {
    replica_->Reset(/*restart=*/false);
    damaged_ = false;
    next_ = seq.value + 1;
    ++record_.reached["undecodable batches"];
    return BatchResult::kUndecodable;
  }
  CheckOrder(batch_.ts, seq.value);
  const uint64_t unknown = index_.counters(worker_).unknown_removes;
  replica_->Apply(seq.value, batch_);
  if (index_.counters(worker_).unknown_removes == unknown) return BatchResult::kApplied;
  ++record_.reached["batches that remove blocks that are not held"];
  return BatchResult::kImpossible;
}

void Follower::OnChallengeAnswer(std::span<const uint8_t> payload) {
  DecodeCounts counts;
  EventBatch answer;
  if (!DecodeBatch(payload, WireLimits(), answer, counts).ok() || answer.events.size() != 1) {
    return Fail("Ordered", "the answer to a challenge is not a batch of one event");
  }
  const auto& store = std::get<BlockStored>(answer.events[0]);
  if (store.block_hashes.at(0) != BlockHash::FromUnsigned(nonce_)) {
    Fail("Fenced", "the answer belongs to an earlier challenge");
  }
  answered_ = OriginOf(answer.ts).life;
  ++record_.reached["answers to challenges"];
}

// The answer of a life shows nothing about the batches of another life.
void Follower::CheckAnswered(int life) const {
  if (answered_ && *answered_ != life) {
    Fail("Fenced", "the answer of life " + std::to_string(*answered_) +
                       " is kept for the state of life " + std::to_string(life));
  }
}

void Follower::CheckOrder(double ts, uint64_t seq) {
  const Origin origin = OriginOf(ts);
  if (origin.publisher != static_cast<int>(worker_.value)) {
    return Fail("Isolated", "a batch of another publisher is applied");
  }
  if (!publisher_.published(origin.life).Has(seq, ts)) {
    Fail("Ordered", "the publisher did not publish this batch under number " + std::to_string(seq));
  }
  if (life_ && *life_ != origin.life) {
    Fail("Fenced", "a batch of life " + std::to_string(origin.life) +
                       " is applied to the state of life " + std::to_string(*life_));
  }
  if (life_ && next_ != seq) {
    Fail("Ordered",
         "batch " + std::to_string(seq) + " is applied instead of batch " + std::to_string(next_));
  }
  CheckAnswered(origin.life);
  life_ = origin.life;
  next_ = seq + 1;
}

void Follower::Reset(ResetReason reason) {
  replica_->Reset(reason == ResetReason::kRestart);
  if (reason == ResetReason::kRestart) answered_.reset();
  if (!index_.Digests(worker_).empty())
    Fail("Fenced", "the index has entries of the source after a reset");
  life_.reset();
  next_ = 0;
  damaged_ = false;
  ++record_.reached["resets: " + std::string(ResetReasonName(reason))];
}

bool Follower::CommitSnapshot(const PublisherStatus& status) {
  if (!replica_->CommitSnapshot(status)) {
    if (repairs_) ++record_.reached["repairs refused"];
    return false;
  }
  const int life = static_cast<int>(status.epoch.low);
  if (repairs_ && life_ != life) Fail("Fenced", "a repair has the state of another life");
  if (repairs_ && next_ != status.next_seq)
    Fail("Ordered", "a repair has another sequence number than the state");
  CheckAnswered(life);
  life_ = life;
  next_ = status.next_seq;
  // After a snapshot or a repair, the state must equal the oracle's state at the sequence number of
  // the status.
  if (SumOf(index_.Digests(worker_)) != publisher_.oracle(life).sum(next_)) {
    Fail("Honest", repairs_ ? "the state after a repair differs from the oracle"
                            : "the state after a snapshot differs from the oracle");
  }
  if (damaged_) {
    ++record_
          .reached[repairs_ ? "damage repaired in its buckets" : "damage repaired by a snapshot"];
  }
  damaged_ = false;
  return true;
}

// The oracle must find the same buckets. It can find them only while it is at the sequence number
// of the status.
uint64_t Follower::DifferingBuckets(const PublisherStatus& status) {
  const uint64_t differing = replica_->DifferingBuckets(status);
  if (next_ != status.next_seq || life_ != static_cast<int>(status.epoch.low)) {
    Fail("Ordered", "the compared status has another life or sequence number than the state");
  }
  const Oracle& oracle = publisher_.oracle(static_cast<int>(status.epoch.low));
  if (oracle.next_seq() != status.next_seq) return differing;
  Holdings unmatched = oracle.holdings();
  residency::BucketMask expected;
  const auto expect = [&expected](uint64_t hash) {
    expected.set(DigestBucketOf(BlockHash::FromUnsigned(hash)));
  };
  index_.ForEachResidency(
      worker_, [&](Tier tier, uint8_t group, const BlockHash& hash, uint32_t copies) {
        const auto it = unmatched.find({static_cast<int>(tier), group, hash.integer()});
        if (it == unmatched.end() || it->second != copies) expect(hash.integer());
        if (it != unmatched.end()) unmatched.erase(it);
      });
  for (const auto& [key, copies] : unmatched) expect(std::get<2>(key));
  if (differing != residency::ArgumentOf(expected))
    Fail("Honest", "DifferingBuckets differs from the oracle");
  ++record_.reached["buckets compared"];
  return differing;
}

void Follower::Check(int64_t now_ms) {
  const SourceStatus status = source_->status(now_ms);
  if (status.state != last_state_) {
    last_state_ = status.state;
    ++record_.reached["state: " + std::string(SourceStateName(status.state)) + " (" +
                      std::string(SourceReasonName(status.reason)) + ")"];
  }
  visible_ = SumOf(index_.Digests(worker_));
  if (damaged_ && status.state == SourceState::kSynced && life_ &&
      visible_ == publisher_.oracle(*life_).sum(status.next_seq)) {
    damaged_ = false;
    ++record_.reached["damage removed by later events"];
  }
  if (status.state == SourceState::kSynced && !damaged_) {
    const HoldingsSum claimed = life_ ? publisher_.oracle(*life_).sum(std::min(
                                            status.next_seq, publisher_.oracle(*life_).next_seq()))
                                      : HoldingsSum{};
    if (life_ && next_ != status.next_seq)
      Fail("Honest", "synced at a sequence number that was not applied");
    if (!life_ && status.next_seq != 0)
      Fail("Honest", "synced, but no batch was applied since the last reset");
    if (visible_ != claimed) {
      Fail("Honest", "synced at " + std::to_string(status.next_seq) +
                         ", but the state differs from the oracle");
    }
  }
  if ((status.state == SourceState::kSynced) !=
      (status.weight == 1 && status.reason == SourceReason::kNone)) {
    Fail("Honest", "the weight or the reason does not fit the state");
  }
  const stream::HoldBack& held = source_->hold_back();
  if (held.batches() > limits_.hold_back_batches || held.bytes() > limits_.hold_back_bytes) {
    Fail("Bounded", "more batches or bytes are held back than the limits allow");
  }
  if (held.batches() == limits_.hold_back_batches) ++record_.reached["hold-back full"];
  if (now_ms - window_ms_ >= 1000) {
    window_ms_ = now_ms;
    window_requests_ = status.replays;
    window_replayed_ = status.replayed;
  }
  // A server may return few batches per request. Each returned batch therefore allows one more
  // request.
  const uint64_t brought = status.replayed - window_replayed_;
  if (status.replays - window_requests_ > kMaxRequestsPerSecond + brought) {
    Fail("Bounded", "more requests in one second than allowed");
  }
}

void Follower::CheckTaken(int64_t now_ms, uint64_t seq) {
  const SourceStatus status = source_->status(now_ms);
  if (status.next_seq + status.lag <= seq) {
    Fail("Prompt", "batch " + std::to_string(seq) +
                       " was received, but is neither applied nor known to be missing");
  }
}

void Follower::CheckDetected(int64_t now_ms, int life, uint64_t next_seq) {
  const SourceStatus status = source_->status(now_ms);
  if (status.state != SourceState::kSynced || !can_replay_) return;
  const bool later = life_ && (*life_ > life || (*life_ == life && status.next_seq >= next_seq));
  if (later || (!life_ && next_seq == 0)) return;
  Fail("Detecting", "synced at " + std::to_string(status.next_seq) + " of life " +
                        std::to_string(life_.value_or(-1)) + ", but the publisher reached " +
                        std::to_string(next_seq) + " of life " + std::to_string(life) +
                        " long before");
}

void Follower::CheckSilence(int64_t now_ms) {
  const SourceStatus status = source_->status(now_ms);
  const bool can_hear = can_replay_ && (limits_.probe_interval_ms > 0 || status.extended);
  if (status.state == SourceState::kSynced && can_hear && now_ms - heard_ms_ > limits_.stale_ms) {
    Fail("Detecting", "synced after " + std::to_string(now_ms - heard_ms_) + " ms of silence");
  }
}

void Follower::CheckContent(int64_t now_ms, bool always) {
  const SourceState state = source_->status(now_ms).state;
  if (damaged_ || !life_ || publisher_.oracle(*life_).next_seq() != next_) return;
  if (state != SourceState::kSynced && state != SourceState::kCleared) return;
  if (!always && visible_ == compared_ && ++unchanged_ % 8 != 0) return;
  compared_ = visible_;
  unchanged_ = 0;
  const Holdings& holdings = publisher_.oracle(*life_).holdings();
  size_t held = 0;
  index_.ForEachResidency(
      worker_, [&](Tier tier, uint8_t group, const BlockHash& hash, uint32_t copies) {
        ++held;
        const auto it = holdings.find({static_cast<int>(tier), group, hash.integer()});
        const uint32_t expected = it == holdings.end() ? 0 : it->second;
        if (state == SourceState::kSynced ? copies != expected : copies > expected) {
          Fail("Honest", "a block has " + std::to_string(copies) + " copies instead of " +
                             std::to_string(expected));
        }
      });
  if (state == SourceState::kSynced && held != holdings.size())
    Fail("Honest", "the index lacks entries of the oracle");
  ++record_.reached["contents compared"];
}

void Follower::CheckConverged(int64_t now_ms) {
  const SourceStatus status = source_->status(now_ms);
  if (!can_replay_) {
    if (silent_since_connect_ && status.state == SourceState::kSuspect &&
        status.reason == SourceReason::kReconnected) {
      ++record_.reached["publishers that were silent since the reconnect"];
    } else if (status.state != SourceState::kSynced && status.state != SourceState::kCleared) {
      Fail("Converging", "a follower without replay is still in state " +
                             std::string(SourceStateName(status.state)));
    }
  } else if (status.state != SourceState::kSynced) {
    Fail("Converging", "still in state " + std::string(SourceStateName(status.state)) + " (" +
                           std::string(SourceReasonName(status.reason)) + ")");
  } else if (status.next_seq != publisher_.visible_end() ||
             (life_ && *life_ != publisher_.life())) {
    Fail("Converging", "at " + std::to_string(status.next_seq) + " of life " +
                           std::to_string(life_.value_or(-1)) + ", but the publisher is at " +
                           std::to_string(publisher_.visible_end()) + " of life " +
                           std::to_string(publisher_.life()));
  }
  if (damaged_) {
    Fail("Detecting",
         "damage was not found by " + std::to_string(status.digest_checks) + " digest checks");
  }
  if (status.extended && publisher_.answers_challenges() && answered_ != publisher_.life()) {
    Fail("Converging", "no challenge of this life is answered");
  }
  CheckContent(now_ms, /*always=*/true);
}

void Follower::Damage(Random& random, int64_t entries) {
  // The entries are sorted, because the order of the index is not the same in every process.
  std::set<std::tuple<Tier, uint8_t, uint64_t>> held;
  index_.ForEachResidency(worker_, [&](Tier tier, uint8_t group, const BlockHash& hash, uint32_t) {
    held.emplace(tier, group, hash.integer());
  });
  if (held.empty()) return;
  EventBatch batch;
  const bool store = random.Percent(30);
  for (auto it = held.begin(); it != held.end() && entries > 0; ++it, --entries) {
    const auto& [tier, group, hash] = *it;
    const char* medium = tier == Tier::kCpu ? kMediumCpu : kMediumGpu;
    if (store) {
      BlockStored event;
      event.block_hashes = {BlockHash::FromUnsigned(hash)};
      event.medium = medium;
      event.group_idx = group;
      event.block_size = 16;
      batch.events.emplace_back(std::move(event));
    } else {
      BlockRemoved event;
      event.block_hashes = {BlockHash::FromUnsigned(hash)};
      event.medium = medium;
      event.group_idx = group;
      batch.events.emplace_back(std::move(event));
    }
  }
  index_.Apply(worker_, batch);
  damaged_ = was_damaged_ = true;
  ++record_.reached["damage done"];
}

void Follower::CountReached(int64_t now_ms) const {
  const SourceStatus status = source_->status(now_ms);
  const auto count = [this](const char* name, uint64_t n) {
    if (n > 0) record_.reached[name] += n;
  };
  count("gaps", status.gaps);
  count("requests", status.replays);
  count("request timeouts", status.replay_timeouts);
  count("requests that waited for their turn", status.replay_waits);
  if (!can_replay_) ++record_.reached["followers without replay"];
  count("batches by replay", status.replayed);
  count("duplicates", status.duplicates);
  count("reconnects", status.reconnects);
  count("lost numbers", status.lost);
  count("bad messages", status.bad_messages);
  count("snapshots", status.snapshots);
  count("snapshot failures", status.snapshot_failures);
  count("repairs", status.repairs);
  count("repair failures", status.repair_failures);
  count("digest checks", status.digest_checks);
  count("digest mismatches", status.digest_mismatches);
  count("quarantines", status.quarantines);
}

}  // namespace kvcast::sim
