// SPDX-License-Identifier: Apache-2.0
#include "router/service/ingest/event_feeds.h"

#include <poll.h>

#include <algorithm>
#include <cctype>
#include <thread>
#include <utility>
#include <vector>

#include "router/service/ingest/http_fetch.h"
#include "src/stream/net/waker.h"

namespace kvcast::router {
namespace {

constexpr int kMethodNotAllowed = 405;

// True: the body is an empty list, "[]".
bool IsEmptyList(std::string_view body) {
  size_t brackets = 0;
  for (const char c : body) {
    if (std::isspace(static_cast<unsigned char>(c)) != 0) continue;
    if (brackets == 2 || c != "[]"[brackets++]) return false;
  }
  return brackets == 2;
}

}  // namespace

// apply_mutex_ serialises the sink's calls for this worker, and is held while events are applied.
// mutex_ is held for a short time only, so that a status never waits for events.
class EventFeeds::Worker {
 public:
  Worker(WorkerId id, std::string feed_endpoint, const EventFeeds& feeds)
      : endpoint(std::move(feed_endpoint)),
        id_(id),
        feeds_(feeds),
        state_(endpoint != kPushEndpoint, feeds.config_.stale_ms, feeds.config_.now_ms()) {}

  // False: the body could not be decoded.
  bool Take(std::string_view body) {
    bool decoded;
    {
      const MutexLock applying(apply_mutex_);
      decoded = removed_ || Apply(body);
    }
    DropIfContradicted();
    return decoded;
  }
  void Fail(FetchOutcome outcome, int status) {
    const MutexLock lock(mutex_);
    state_.OnFailedPoll(outcome, status, feeds_.config_.now_ms());
  }
  // If another thread is applying events, that thread drops the blocks after it has applied the
  // events.
  void Contradict() {
    {
      const MutexLock lock(mutex_);
      contradicted_ = true;
    }
    DropIfContradicted();
  }
  void Remove() {
    const MutexLock applying(apply_mutex_);
    removed_ = true;
  }
  SourceStatus status() const {
    const MutexLock lock(mutex_);
    SourceStatus status = state_.status(feeds_.config_.now_ms());
    if (contradicted_ && status.state == SourceState::kSynced) {
      status.state = SourceState::kSuspect;
      status.reason = SourceReason::kContradicted;
    }
    return status;
  }
  FeedCounters counters() const {
    const MutexLock lock(mutex_);
    return state_.counters();
  }

  const std::string endpoint;

 private:
  bool Apply(std::string_view body) KV_REQUIRES(apply_mutex_) {
    const int64_t now = feeds_.config_.now_ms();
    uint64_t next;
    {
      const MutexLock lock(mutex_);
      if (IsEmptyList(body)) {
        state_.OnEmpty(now);
        return true;
      }
      next = state_.next();
    }
    const BatchResult result = feeds_.sink_.apply(
        id_, Seq(next), {reinterpret_cast<const uint8_t*>(body.data()), body.size()});
    {
      const MutexLock lock(mutex_);
      state_.OnApplied(result, now);
    }
    if (result == BatchResult::kUndecodable) Drop(SourceReason::kUndecodable);
    if (result == BatchResult::kRefuted) Drop(SourceReason::kContradicted);
    if (result == BatchResult::kTooLarge) Drop(SourceReason::kTooLarge);
    return result != BatchResult::kUndecodable;
  }
  void Drop(SourceReason reason) KV_REQUIRES(apply_mutex_) {
    feeds_.sink_.on_reset(id_, ResetReason::kDoubt);
    const MutexLock lock(mutex_);
    state_.OnReset(reason);
    contradicted_ = false;
  }
  bool IsContradicted() {
    const MutexLock lock(mutex_);
    return contradicted_;
  }
  // If a thread cannot lock apply_mutex_, another thread holds the mutex and drops the blocks: the
  // other thread calls this function after it has released the mutex.
  void DropIfContradicted() {
    while (IsContradicted()) {
      if (!apply_mutex_.try_lock()) return;
      if (removed_ || !IsContradicted()) {
        apply_mutex_.unlock();
        return;
      }
      Drop(SourceReason::kContradicted);
      apply_mutex_.unlock();
    }
  }

  const WorkerId id_;
  const EventFeeds& feeds_;
  Mutex apply_mutex_;  // must be locked before mutex_
  bool removed_ KV_GUARDED_BY(apply_mutex_) = false;
  mutable Mutex mutex_;
  bool contradicted_ KV_GUARDED_BY(mutex_) = false;  // the blocks must be dropped
  FeedState state_ KV_GUARDED_BY(mutex_);
};

class EventFeeds::Poller {
 public:
  Poller(HttpUrl url, int64_t poll_ms, const FeedConfig& config, stream::NameResolver& resolver,
         std::shared_ptr<stream::Waker> stop)
      : url_(std::move(url)),
        poll_ms_(poll_ms),
        config_(config),
        resolver_(resolver),
        stop_(std::move(stop)) {}
  ~Poller() {
    stop_->Wake();
    if (thread_.joinable()) thread_.join();
  }

  void Add(std::shared_ptr<Worker> worker) {
    const MutexLock lock(mutex_);
    workers_.push_back(std::move(worker));
  }
  // True: the poller has no workers left.
  bool Remove(const Worker* worker) {
    const MutexLock lock(mutex_);
    std::erase_if(workers_, [worker](const auto& other) { return other.get() == worker; });
    return workers_.empty();
  }
  void Begin() {
    if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  }

 private:
  void Run() {
    int64_t wait_ms = 0;
    while (!Stopped(wait_ms)) {
      FetchOptions options;
      options.method = method_;
      options.timeout_ms = config_.timeout_ms;
      options.stop_fd = stop_->descriptor();
      options.resolver = &resolver_;
      const FetchResult result = Fetch(url_, options);
      if (result.outcome == FetchOutcome::kStopped) return;
      wait_ms = Deliver(result) ? poll_ms_ : std::max(poll_ms_, config_.retry_ms);
    }
  }
  // False: the poll failed.
  bool Deliver(const FetchResult& result) {
    std::vector<std::shared_ptr<Worker>> workers;
    {
      const MutexLock lock(mutex_);
      workers = workers_;
    }
    const bool answered = result.outcome == FetchOutcome::kAnswered;
    if (answered && result.status == kMethodNotAllowed) SwitchMethod();
    const bool good = answered && result.status == kHttpOk;
    for (const auto& worker : workers) {
      good ? (void)worker->Take(result.body) : worker->Fail(result.outcome, result.status);
    }
    return good;
  }
  // Older versions of TensorRT-LLM's server accept POST. Newer versions refuse POST and accept GET.
  void SwitchMethod() { method_ = method_ == "POST" ? "GET" : "POST"; }
  bool Stopped(int64_t wait_ms) const {
    pollfd wait = {stop_->descriptor(), POLLIN, 0};
    return poll(&wait, 1, static_cast<int>(wait_ms)) > 0;
  }

  const HttpUrl url_;
  const int64_t poll_ms_;
  const FeedConfig& config_;
  stream::NameResolver& resolver_;
  const std::shared_ptr<stream::Waker> stop_;
  std::string_view method_ = "POST";  // only thread_ uses it
  Mutex mutex_;
  std::vector<std::shared_ptr<Worker>> workers_ KV_GUARDED_BY(mutex_);
  std::thread thread_;
};

EventFeeds::EventFeeds(FeedConfig config, FeedSink sink)
    : config_(std::move(config)), sink_(std::move(sink)), resolver_(config_.lookup) {}

EventFeeds::~EventFeeds() {
  std::map<std::string, std::shared_ptr<Poller>> pollers;
  const MutexLock lock(mutex_);
  pollers.swap(pollers_);
}

std::shared_ptr<EventFeeds::Worker> EventFeeds::Find(WorkerId worker) const {
  const MutexLock lock(mutex_);
  const auto it = workers_.find(worker);
  return it == workers_.end() ? nullptr : it->second;
}

Status EventFeeds::Add(WorkerId id, const std::string& endpoint, int64_t poll_ms) {
  const auto worker = std::make_shared<Worker>(id, endpoint, *this);
  const MutexLock lock(mutex_);
  if (endpoint != kPushEndpoint) {
    std::shared_ptr<Poller>& poller = pollers_[endpoint];
    if (!poller) {
      auto url = ParseHttpUrl(endpoint);
      auto stop = stream::Waker::Create();
      if (!url.ok() || !stop.ok()) {
        pollers_.erase(endpoint);
        return url.ok() ? stop.status() : url.status();
      }
      poller = std::make_shared<Poller>(std::move(url).value(), poll_ms, config_, resolver_,
                                        std::move(stop).value());
    }
    poller->Add(worker);
  }
  workers_[id] = worker;
  return Status();
}

void EventFeeds::Begin() {
  const MutexLock lock(mutex_);
  for (const auto& [endpoint, poller] : pollers_) poller->Begin();
}

void EventFeeds::Remove(WorkerId id) {
  std::shared_ptr<Poller> ended;  // destroyed, and its thread joined, after the lock is released
  const auto worker = Find(id);
  if (!worker) return;
  {
    const MutexLock lock(mutex_);
    workers_.erase(id);
    const auto poller = pollers_.find(worker->endpoint);
    if (poller != pollers_.end() && poller->second->Remove(worker.get())) {
      ended = std::move(poller->second);
      pollers_.erase(poller);
    }
  }
  worker->Remove();
}

bool EventFeeds::Has(WorkerId worker) const { return Find(worker) != nullptr; }

Status EventFeeds::Push(WorkerId id, std::string_view body) {
  const auto worker = Find(id);
  if (!worker || worker->endpoint != kPushEndpoint) {
    return {StatusCode::kFailedPrecondition, "the worker's endpoint is not \"push\""};
  }
  if (worker->Take(body)) return Status();
  return {StatusCode::kMalformed, "body: not a list of events; the worker's blocks were dropped"};
}

void EventFeeds::Contradict(WorkerId id) {
  if (const auto worker = Find(id)) worker->Contradict();
}

SourceStatus EventFeeds::status(WorkerId id) const {
  const auto worker = Find(id);
  return worker ? worker->status() : SourceStatus();
}

FeedCounters EventFeeds::counters(WorkerId id) const {
  const auto worker = Find(id);
  return worker ? worker->counters() : FeedCounters();
}

}  // namespace kvcast::router
