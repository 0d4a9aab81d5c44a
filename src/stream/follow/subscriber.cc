// SPDX-License-Identifier: Apache-2.0
#include "kvcast/stream/subscriber.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "src/base/clock.h"
#include "src/base/mutex.h"
#include "src/stream/follow/slow_lane.h"
#include "src/stream/follow/source_link.h"
#include "src/stream/follow/turn_gate.h"
#include "src/stream/net/poller.h"
#include "src/stream/net/waker.h"

namespace kvcast {
namespace {

using stream::SourceLink;

struct FollowedSource {
  std::unique_ptr<SourceLink> link;
  bool away = false;  // a lane works for the link; no other thread may use it

  WorkerId worker() const { return link->worker(); }
};

// A frame of this size can hold the largest status without buckets: 3 tiers of 64 groups.
constexpr int64_t kMinMaxFrameBytes = 8 << 10;

Status CheckConfig(const SubscriberConfig& config) {
  if (config.replay_timeout_ms <= 0) {
    return {StatusCode::kInvalidArgument, "replay_timeout_ms must be positive"};
  }
  if (config.probe_interval_ms < 0 || config.stale_ms < 0 || config.audit_interval_ms < 0) {
    return {StatusCode::kInvalidArgument,
            "probe_interval_ms, stale_ms or audit_interval_ms is negative"};
  }
  if (config.recv_hwm < 0) return {StatusCode::kInvalidArgument, "recv_hwm is negative"};
  if (config.max_replays == 0) {
    return {StatusCode::kInvalidArgument, "max_replays must be positive"};
  }
  if (config.max_status_requests == 0) {
    return {StatusCode::kInvalidArgument, "max_status_requests must be positive"};
  }
  if (config.max_frame_bytes < kMinMaxFrameBytes) {
    return {StatusCode::kInvalidArgument, "max_frame_bytes is below 8192"};
  }
  return Status();
}

}  // namespace

std::string_view SourceStateName(SourceState state) {
  switch (state) {
    case SourceState::kConnecting:
      return "connecting";
    case SourceState::kBootstrap:
      return "bootstrap";
    case SourceState::kSynced:
      return "synced";
    case SourceState::kGap:
      return "gap";
    case SourceState::kSuspect:
      return "suspect";
    case SourceState::kCleared:
      return "cleared";
    case SourceState::kStale:
      return "stale";
    case SourceState::kQuarantined:
      return "quarantined";
  }
  return "unknown";
}

std::string_view SourceReasonName(SourceReason reason) {
  switch (reason) {
    case SourceReason::kNone:
      return "none";
    case SourceReason::kJoining:
      return "joining";
    case SourceReason::kUnheard:
      return "unheard";
    case SourceReason::kUnresolved:
      return "unresolved";
    case SourceReason::kGap:
      return "gap";
    case SourceReason::kReconnected:
      return "reconnected";
    case SourceReason::kUnproven:
      return "unproven";
    case SourceReason::kLostBatches:
      return "lost_batches";
    case SourceReason::kUndecodable:
      return "undecodable";
    case SourceReason::kBadEvents:
      return "bad_events";
    case SourceReason::kDigest:
      return "digest";
    case SourceReason::kContradicted:
      return "contradicted";
    case SourceReason::kDisconnected:
      return "disconnected";
    case SourceReason::kSilent:
      return "silent";
    case SourceReason::kTooLarge:
      return "too_large";
  }
  return "unknown";
}

std::string_view SourceHint(const SourceStatus& status) {
  if (status.reason == SourceReason::kUnresolved) return "the host name has no known address";
  if (status.reason != SourceReason::kUnheard) return "";
  if (status.bound) return "no publisher has connected for 10 s";
  return "no connection for 10 s: if the engine connects its publisher (vLLM does for "
         "tcp://127.0.0.1:PORT), set bind=true";
}

std::string_view ResetReasonName(ResetReason reason) {
  switch (reason) {
    case ResetReason::kRestart:
      return "restart";
    case ResetReason::kLostBatches:
      return "lost_batches";
    case ResetReason::kDoubt:
      return "doubt";
  }
  return "unknown";
}

class Subscriber::Impl {
 public:
  Impl(const SubscriberConfig& config, stream::SourceContexts contexts,
       std::shared_ptr<stream::Waker> waker, std::unique_ptr<stream::Poller> poller)
      : config_(config),
        now_ms_(config.now_ms ? config.now_ms : SteadyMs),
        contexts_(std::move(contexts)),
        waker_(std::move(waker)),
        poller_(std::move(poller)),
        resolver_(config.resolve),
        turns_{stream::FairPermits(config.max_status_requests),
               stream::FairPermits(config.max_replays)},
        slow_lane_(*waker_),
        long_lane_(*waker_) {}
  ~Impl();

  // Must be called once, before the other functions.
  Status Start();
  Status Add(const SourceConfig& source, std::shared_ptr<ReplicaSink> sink);
  void Remove(WorkerId worker);
  void Contradict(WorkerId worker);
  void BetweenTurns(const std::function<void(const std::vector<FollowedPosition>&)>& use);
  SourceStatus status(WorkerId worker) const;

 private:
  struct Lane {
    explicit Lane(stream::Waker& waker) : thread([&waker] { waker.Wake(); }) {}
    stream::SlowLane thread;
    SourceLink* link = nullptr;  // link of the latest work; used by the lane's thread only
    stream::TurnGate gate;
  };
  void Run();
  std::vector<FollowedPosition> Positions() const;
  bool TakeCommands();
  void TakeBack();
  bool GiveAway(FollowedSource& source, stream::TurnLength turn);
  void TakeContradictions(int64_t now_ms);
  void WaitForWork();
  void CheckPeers(int64_t now_ms);
  void Work();
  void NoteStatus(const SourceLink& link, int64_t now_ms);
  FollowedSource* Find(WorkerId worker);

  const SubscriberConfig config_;
  const std::function<int64_t()> now_ms_;
  // The shared contexts. Inproc publishers of this process use the context for live sockets.
  const stream::SourceContexts contexts_;
  const std::shared_ptr<stream::Waker> waker_;
  const std::unique_ptr<stream::Poller> poller_;  // outlives the links

  stream::NameResolver resolver_;  // outlives the links
  stream::RequestTurns turns_;     // outlives the links

  mutable Mutex mutex_;
  CondVar removed_;
  std::set<WorkerId> opening_ KV_GUARDED_BY(mutex_);  // workers whose Add has not returned
  std::map<WorkerId, SourceStatus> statuses_
      KV_GUARDED_BY(mutex_);  // sources that are followed or being added
  std::vector<FollowedSource> to_add_ KV_GUARDED_BY(mutex_);
  std::vector<WorkerId> to_remove_ KV_GUARDED_BY(mutex_);
  std::vector<WorkerId> to_contradict_ KV_GUARDED_BY(mutex_);
  bool stopping_ KV_GUARDED_BY(mutex_) = false;

  // Used by thread_ only, in its turns. Exception: BetweenTurns reads the sources while no turn is
  // in progress.
  stream::TurnGate gate_;
  std::vector<FollowedSource> sources_;
  int64_t checked_peers_ms_ = 0;
  std::atomic<bool> woken_{false};  // set by the poller
  stream::Poller::Watch waker_watch_;
  // Two lanes, so that a slow turn does not wait for a long turn.
  Lane slow_lane_;
  Lane long_lane_;

  std::thread thread_;  // last: the thread uses the other members
};

Subscriber::Impl::~Impl() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  waker_->Wake();
  if (thread_.joinable()) thread_.join();
}

// Throws std::system_error if no thread can start.
Status Subscriber::Impl::Start() {
  Result<stream::Poller::Watch> watch = poller_->Add(waker_->descriptor(), &woken_);
  if (!watch.ok()) return watch.status();
  waker_watch_ = std::move(watch).value();
  thread_ = std::thread([this] { Run(); });
  return Status();
}

Status Subscriber::Impl::Add(const SourceConfig& source, std::shared_ptr<ReplicaSink> sink) {
  {
    MutexLock lock(mutex_);
    if (opening_.contains(source.worker) || !statuses_.try_emplace(source.worker).second) {
      return Status(StatusCode::kFailedPrecondition,
                    "worker " + std::to_string(source.worker.value) + " is followed already");
    }
    opening_.insert(source.worker);
  }
  Result<std::unique_ptr<SourceLink>> link =
      SourceLink::Open(source, config_, contexts_, *poller_, std::move(sink), turns_, resolver_);
  MutexLock lock(mutex_);
  opening_.erase(source.worker);
  if (!link.ok()) {
    statuses_.erase(source.worker);
    return link.status();
  }
  if (!statuses_.contains(source.worker)) {
    return Status(StatusCode::kFailedPrecondition,
                  "worker " + std::to_string(source.worker.value) + " was removed during Add");
  }
  to_add_.push_back({std::move(link).value()});
  waker_->Wake();
  return Status();
}

void Subscriber::Impl::Remove(WorkerId worker) {
  const bool called_by_thread = std::this_thread::get_id() == thread_.get_id();
  if (called_by_thread) {
    FollowedSource* const source = Find(worker);
    if (source != nullptr && !source->away) source->link->Mute();
  }
  bool called_by_sink = called_by_thread;
  for (const Lane* lane : {&slow_lane_, &long_lane_}) {
    if (!lane->thread.IsCaller()) continue;
    called_by_sink = true;
    if (lane->link->worker() == worker) lane->link->Mute();
  }
  MutexLock lock(mutex_);
  if (statuses_.erase(worker) == 0) return;
  std::erase_if(to_add_, [worker](const auto& source) { return source.worker() == worker; });
  to_remove_.push_back(worker);
  waker_->Wake();
  if (called_by_sink) return;
  while (std::ranges::find(to_remove_, worker) != to_remove_.end()) removed_.Wait(mutex_);
}

void Subscriber::Impl::Contradict(WorkerId worker) {
  MutexLock lock(mutex_);
  to_contradict_.push_back(worker);
  waker_->Wake();
}

// Calls Contradict without the lock, because Contradict calls sinks.
void Subscriber::Impl::TakeContradictions(int64_t now_ms) {
  std::vector<WorkerId> workers;
  {
    MutexLock lock(mutex_);
    workers.swap(to_contradict_);
  }
  std::vector<WorkerId> later;
  for (const WorkerId worker : workers) {
    FollowedSource* const source = Find(worker);
    if (source == nullptr) continue;
    if (source->away) {
      later.push_back(worker);
      continue;
    }
    source->link->Contradict(now_ms);
    NoteStatus(*source->link, now_ms);  // Work skips a link that is sure and not due
  }
  if (later.empty()) return;
  MutexLock lock(mutex_);
  to_contradict_.insert(to_contradict_.end(), later.begin(), later.end());
}

// The gate of the longest turns is closed first, so that the other sources wait only for short
// turns.
void Subscriber::Impl::BetweenTurns(
    const std::function<void(const std::vector<FollowedPosition>&)>& use) {
  const stream::ClosedGate long_lane(long_lane_.gate);
  const stream::ClosedGate slow_lane(slow_lane_.gate);
  const stream::ClosedGate thread(gate_);
  use(Positions());
}

// A source that the thread has not taken yet has the position of its saved state. REQUIRES: no turn
// is in progress.
std::vector<FollowedPosition> Subscriber::Impl::Positions() const {
  std::vector<FollowedPosition> positions;
  const auto add = [&positions](const FollowedSource& source) {
    if (auto position = source.link->Position()) {
      positions.push_back({source.worker(), std::move(*position)});
    }
  };
  std::ranges::for_each(sources_, add);
  MutexLock lock(mutex_);
  std::ranges::for_each(to_add_, add);
  return positions;
}

FollowedSource* Subscriber::Impl::Find(WorkerId worker) {
  const auto it = std::ranges::find(sources_, worker, &FollowedSource::worker);
  return it == sources_.end() ? nullptr : &*it;
}

SourceStatus Subscriber::Impl::status(WorkerId worker) const {
  MutexLock lock(mutex_);
  const auto it = statuses_.find(worker);
  return it == statuses_.end() ? SourceStatus() : it->second;
}

void Subscriber::Impl::Run() {
  for (;;) {
    {
      const stream::Turn turn(gate_);
      if (!TakeCommands()) break;
    }
    WaitForWork();
    const stream::Turn turn(gate_);
    Work();
  }
  slow_lane_.thread.Stop();
  long_lane_.thread.Stop();
  sources_.clear();
}

// False: the thread must stop.
bool Subscriber::Impl::TakeCommands() {
  if (woken_.exchange(false)) waker_->Drain();
  TakeBack();
  MutexLock lock(mutex_);
  if (stopping_) return false;
  std::erase_if(to_remove_, [this](WorkerId worker) {
    const FollowedSource* const source = Find(worker);
    if (source != nullptr && source->away) return false;
    std::erase_if(sources_, [worker](const auto& other) { return other.worker() == worker; });
    return true;
  });
  // A lane may still work for a removed source of the same worker.
  const auto later = std::ranges::stable_partition(
      to_add_, [this](const FollowedSource& source) { return Find(source.worker()) == nullptr; });
  for (auto source = to_add_.begin(); source != later.begin(); ++source) {
    source->link->Start();
    sources_.push_back(std::move(*source));
  }
  to_add_.erase(to_add_.begin(), later.begin());
  removed_.NotifyAll();
  return true;
}

// Takes back the links for which the lanes have finished their work.
void Subscriber::Impl::TakeBack() {
  for (Lane* const lane : {&slow_lane_, &long_lane_}) {
    for (const WorkerId worker : lane->thread.TakeDone()) {
      FollowedSource& source = *Find(worker);
      source.away = false;
      NoteStatus(*source.link, now_ms_());
    }
  }
}

// Lets a lane do the next turn of the link. False: the caller must do the turn.
bool Subscriber::Impl::GiveAway(FollowedSource& source, stream::TurnLength turn) {
  if (!config_.slow_threads || turn == stream::TurnLength::kShort) return false;
  const bool is_long = turn == stream::TurnLength::kLong;
  Lane& lane = is_long ? long_lane_ : slow_lane_;
  SourceLink* const link = source.link.get();
  source.away = lane.thread.Give(link->worker(), [this, &lane, link, is_long] {
    const stream::Turn turn_of_lane(lane.gate);
    lane.link = link;
    link->Work(now_ms_(), /*takes_large=*/is_long);
  });
  return source.away;
}

void Subscriber::Impl::WaitForWork() {
  int64_t deadline =
      sources_.empty() ? stream::kNever : checked_peers_ms_ + stream::EndlessMessage::kCheckMs;
  for (const FollowedSource& source : sources_) {
    if (!source.away) deadline = std::min(deadline, source.link->deadline_ms());
  }
  const bool timed = deadline != stream::kNever;
  poller_->Wait(timed ? std::max<int64_t>(deadline - now_ms_(), 0) : -1);
}

void Subscriber::Impl::CheckPeers(int64_t now_ms) {
  const int64_t passed_ms = now_ms - checked_peers_ms_;
  if (passed_ms >= 0 && passed_ms < stream::EndlessMessage::kCheckMs) return;
  checked_peers_ms_ = now_ms;
  for (FollowedSource& source : sources_) {
    if (!source.away) source.link->CheckPeers(now_ms);
  }
}

void Subscriber::Impl::Work() {
  const int64_t now_ms = now_ms_();
  CheckPeers(now_ms);
  TakeContradictions(now_ms);
  for (FollowedSource& source : sources_) {
    if (source.away) continue;
    SourceLink& link = *source.link;
    const bool due = link.is_due(now_ms);
    // A renewal that is scheduled for later makes the link due, but there is no message to handle.
    const stream::TurnLength turn = link.next_turn(now_ms);
    if (now_ms >= link.deadline_ms() && GiveAway(source, turn)) continue;
    // A long turn is done here only if no lane can start, or if there is no message to handle.
    if (due) link.Work(now_ms, !config_.slow_threads || turn == stream::TurnLength::kLong);
    // If a source is not sure, its weight changes with time.
    if (due || !link.is_sure()) NoteStatus(link, now_ms);
  }
}

void Subscriber::Impl::NoteStatus(const SourceLink& link, int64_t now_ms) {
  const SourceStatus status = link.status(now_ms);
  {
    MutexLock lock(mutex_);
    const auto it = statuses_.find(link.worker());
    if (it == statuses_.end()) return;
    const SourceStatus before = std::exchange(it->second, status);
    if (before.state == status.state && before.reason == status.reason) return;
  }
  if (config_.on_state) config_.on_state(link.worker(), status);
}

Subscriber::Subscriber(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Subscriber::~Subscriber() = default;

Result<std::unique_ptr<Subscriber>> Subscriber::Create(const SubscriberConfig& config) {
  if (Status status = CheckConfig(config); !status.ok()) return status;
  Result<std::shared_ptr<stream::Waker>> waker = stream::Waker::Create();
  if (!waker.ok()) return waker.status();
  Result<std::unique_ptr<stream::Poller>> poller = stream::Poller::Create();
  if (!poller.ok()) return poller.status();
  const stream::SourceContexts contexts{stream::Context::Shared(),
                                        stream::Context::SharedForRequests()};
  if (!contexts.live->ok() || !contexts.requests->ok()) {
    return Status(StatusCode::kUnavailable, "too few file descriptors");
  }
  try {
    auto impl = std::make_unique<Impl>(config, contexts, *waker, std::move(poller).value());
    if (Status status = impl->Start(); !status.ok()) return status;
    return std::unique_ptr<Subscriber>(new Subscriber(std::move(impl)));
  } catch (const std::system_error& error) {
    return Status(StatusCode::kUnavailable, std::string("cannot start a thread: ") + error.what());
  }
}

Status Subscriber::Add(const SourceConfig& source, std::shared_ptr<ReplicaSink> sink) {
  return impl_->Add(source, std::move(sink));
}
void Subscriber::Remove(WorkerId worker) { impl_->Remove(worker); }
void Subscriber::Contradict(WorkerId worker) { impl_->Contradict(worker); }
void Subscriber::BetweenTurns(
    const std::function<void(const std::vector<FollowedPosition>&)>& use) {
  impl_->BetweenTurns(use);
}
SourceStatus Subscriber::status(WorkerId worker) const { return impl_->status(worker); }

}  // namespace kvcast
