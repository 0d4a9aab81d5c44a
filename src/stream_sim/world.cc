// SPDX-License-Identifier: Apache-2.0
#include "src/stream_sim/world.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <string>

#include "src/base/check.h"
#include "src/stream/follow/quarantine.h"
#include "src/stream_sim/link.h"

namespace kvcast::sim {
namespace {

// The phases of a run: first the faults end, then the traffic ends. Then each publisher without
// snapshots restarts if its follower has lost batches. At the end all followers must have
// converged.
constexpr int64_t kFaultsEndMs = 20000;
constexpr int64_t kTrafficEndMs = 24000;
constexpr int64_t kRestartMs = 50000;
constexpr int64_t kEndMs = 80000;
// Sources in quarantine get more time. Each quarantine takes twice as long as the previous one.
// Several quarantines may have started if clocks jumped.
constexpr int64_t kQuarantinesEndMs = kEndMs + 2 * stream::Quarantine::kMaxMs;
constexpr int64_t kTickMs = 1000;
// The longest pause between two calls of TickPublisher. Each second has at least one tick, but no
// tick in its last kQuietMs. The heartbeats therefore arrive before the run ends.
constexpr int64_t kMaxTickPauseMs = 300;
constexpr int64_t kQuietMs = 100;
constexpr uint64_t kMaxEvents = 400000;

// In half of the runs, only one follower at a time may request a status.
size_t MaxStatusRequests(uint64_t seed) { return Random(seed, 0x57A7).Percent(50) ? 1 : 256; }

class World {
 public:
  explicit World(const Plan& plan)
      : seed_(plan.seed),
        random_(plan.seed, 1),
        turns_{.short_answers = stream::FairPermits(MaxStatusRequests(plan.seed)),
               .long_answers = stream::FairPermits(
                   static_cast<size_t>(random_.Percent(50) ? random_.Between(1, 2) : 4))} {
    const int count = PublisherCount(plan.seed);
    for (int i = 0; i < count; ++i) AddLink(i);
    for (const Fault& fault : plan.faults) {
      agenda_.At(fault.at_ms, [this, fault] { link(fault.publisher).Apply(fault); });
      if (fault.kind == FaultKind::kRestartFollower && fault.amount < fault.at_ms) {
        agenda_.At(fault.at_ms - fault.amount,
                   [this, fault] { link(fault.publisher).SaveFollower(); });
      }
    }
    agenda_.At(kTickMs, [this] { Tick(); });
    agenda_.At(kRestartMs, [this] { RestartCleared(); });
  }

  static int PublisherCount(uint64_t seed) {
    return static_cast<int>(Random(seed, 2).Between(1, 4));
  }

  Record Run() {
    uint64_t events = 0;
    int64_t end_ms = kEndMs;
    for (;;) {
      while (record_.violations.empty() && agenda_.RunNext(end_ms)) {
        if (++events > kMaxEvents) record_.Fail("Bounded", "the run does not end");
      }
      if (!record_.violations.empty() || !AnyQuarantined() || end_ms >= kQuarantinesEndMs) break;
      if (end_ms == kEndMs) ++record_.reached["runs that last longer because of a quarantine"];
      end_ms += kTickMs;
    }
    record_.events += events;
    for (int i = 0; i < static_cast<int>(links_.size()); ++i) {
      Follower& follower = link(i).follower();
      if (record_.violations.empty()) follower.CheckConverged(link(i).follower_ms());
      if (record_.violations.empty() && link(i).relay() != nullptr)
        link(i).relay()->CheckConverged();
      follower.CountReached(link(i).follower_ms());
      if (link(i).publisher().overruns() > 0) {
        record_.reached["ring overruns"] += link(i).publisher().overruns();
      }
    }
    return record_;
  }

 private:
  // The life and the sequence number of a publisher at one call of Tick.
  struct Head {
    int64_t ms = 0;
    int life = 0;
    uint64_t next_seq = 0;
  };
  struct Station {
    std::unique_ptr<Link> link;
    std::deque<Head> heads;
  };

  Link& link(int i) { return *links_[static_cast<size_t>(i)].link; }

  bool AnyQuarantined() {
    return std::any_of(links_.begin(), links_.end(), [](const Station& station) {
      const SourceStatus status = station.link->follower().status(station.link->follower_ms());
      return status.state == SourceState::kQuarantined;
    });
  }

  void AddLink(int i) {
    WorkerConfig config;
    config.name = std::to_string(i);
    config.digests = true;
    KV_CHECK(index_.AddWorker(WorkerId(static_cast<uint32_t>(i)), config).ok());
    stream::SourceLimits limits;
    limits.extension = random_.Percent(90);
    limits.replay_timeout_ms = random_.Between(300, 2000);
    if (random_.Percent(30)) limits.audit_interval_ms = random_.Between(500, 5000);
    if (random_.Percent(80)) limits.jitter_seed = random_.Next();
    if (random_.Percent(30)) limits.hold_back_batches = static_cast<size_t>(random_.Between(2, 20));
    const bool can_replay = !random_.Percent(8);
    const bool relayed = Random(seed_, 0x4E1A0 + static_cast<uint64_t>(i)).Percent(25);
    if (relayed) limits.extension = false;  // a relay follows by replays
    links_.push_back({std::make_unique<Link>(seed_, i, limits, can_replay, relayed, agenda_, turns_,
                                             index_, record_),
                      {}});
    link(i).set_on_turns([this] {
      for (Station& station : links_) station.link->LookAtTurns();
    });
    link(i).Start();
    agenda_.At(random_.Roll(100), [this, i] { Publish(i); });
    agenda_.At(random_.Roll(kMaxTickPauseMs), [this, i] { TickPublisher(i); });
  }

  void Publish(int i) {
    if (agenda_.now_ms() >= kTrafficEndMs) return;
    if (!link(i).publisher_paused()) link(i).PublishStep();
    const int64_t pause = random_.Percent(97) ? random_.Between(2, 60) : random_.Between(500, 5000);
    agenda_.At(agenda_.now_ms() + pause, [this, i] { Publish(i); });
  }

  void TickPublisher(int i) {
    const bool quiet = agenda_.now_ms() % kTickMs >= kTickMs - kQuietMs;
    if (!quiet && !link(i).publisher_paused()) link(i).TickPublisher();
    const int64_t pause = random_.Between(stream::PublisherCore::kTickMs, kMaxTickPauseMs);
    agenda_.At(agenda_.now_ms() + pause, [this, i] { TickPublisher(i); });
  }

  void Tick() {
    const int64_t now = agenda_.now_ms();
    for (Station& station : links_) {
      Link& link = *station.link;
      // Idle links are checked too: the batches of one publisher must not change the state of
      // another link.
      link.follower().Check(link.follower_ms());
      link.follower().CheckContent(link.follower_ms());
      if (link.relay() != nullptr) link.relay()->Tick();
      station.heads.push_back({now, link.publisher().life(), link.publisher().visible_end()});
      if (now - station.heads.front().ms < kDetectionMs) continue;
      const Head then = station.heads.front();
      station.heads.pop_front();
      if (link.healthy_since_ms() > then.ms) continue;
      link.follower().CheckDetected(link.follower_ms(), then.life, then.next_seq);
    }
    agenda_.At(now + kTickMs, [this] { Tick(); });
  }

  void RestartCleared() {
    for (Station& station : links_) {
      Link& link = *station.link;
      if (!link.follower().can_replay()) continue;
      const SourceState state = link.follower().status(link.follower_ms()).state;
      if (state == SourceState::kSynced) continue;
      const bool has_snapshots = follows_extension(link) && link.publisher().tells_state();
      const bool quarantined = state == SourceState::kQuarantined;
      // The quarantine ends after the state was correct for some time.
      if (quarantined && has_snapshots) continue;
      // If a publisher has no snapshots, lost batches stay lost.
      if (has_snapshots || !(quarantined || state == SourceState::kCleared)) {
        link.follower().CheckConverged(link.follower_ms());
      }
      ++record_.reached["restarts after batches were lost permanently"];
      link.Restart(1, /*large_ring=*/true);
    }
  }
  static bool follows_extension(Link& link) {
    return link.follower().status(link.follower_ms()).extended;
  }

  const uint64_t seed_;
  Random random_;
  Record record_;
  Agenda agenda_;
  stream::RequestTurns turns_;
  PrefixIndex index_;
  std::vector<Station> links_;
};

}  // namespace

Plan DrawPlan(uint64_t seed) {
  return {seed, DrawFaults(seed, World::PublisherCount(seed), kFaultsEndMs)};
}

Record RunPlan(const Plan& plan) { return World(plan).Run(); }

}  // namespace kvcast::sim
