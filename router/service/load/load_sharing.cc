// SPDX-License-Identifier: Apache-2.0
#include "router/service/load/load_sharing.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "router/service/load/peer_link.h"
#include "src/base/mutex.h"
#include "src/stream/net/gate.h"
#include "src/stream/net/name_resolver.h"
#include "src/stream/net/poller.h"
#include "src/stream/net/socket.h"
#include "src/stream/net/waker.h"

namespace kvcast::router {
namespace {

constexpr int kPubLingerMs = 50;  // not 0, because of libzmq issue 3442
constexpr int kUnsentGauges = 16;
constexpr int kStalledPeerMs = 10000;
constexpr int64_t kMaxPeerFrameBytes = 4 << 10;  // a subscription has a few bytes
// The messages of the peers are read for at most 1 / kReadsPerPeriod of a period at a time.
constexpr int64_t kReadsPerPeriod = 4;

}  // namespace

class LoadSharing::Impl {
 public:
  Impl(LoadSharingConfig config, LoadExchange exchange)
      : config_(std::move(config)),
        exchange_(std::move(exchange)),
        loads_(config_.name, config_.epoch) {}
  ~Impl() { Stop(); }  // closes pub_ before guard_ is destroyed
  Status Start();
  void Stop();
  void NoteChange() {
    if (!changed_.exchange(true)) waker_->Wake();
  }
  const LoadSharingConfig& config() const { return config_; }
  const std::string& endpoint() const { return endpoint_; }
  LoadSharingCounters counters() const;

 private:
  Status Bind();
  void Run();
  void Read(int64_t now_us);
  void Take(stream::Frames frames, int64_t now_us);
  void NoteView();
  void Apply(int64_t now_us);
  void Publish(int64_t now_us);
  int64_t WaitMs(int64_t now_us) const;
  int64_t period_us() const { return config_.period_ms * 1000; }
  // The time at which the load of this router must be published.
  int64_t publish_at_us() const {
    if (!pub_.is_open()) return INT64_MAX;
    return sent_us_ + (changed_ ? period_us() / 10 : period_us());
  }
  // The time at which the selector must get the loads of the other routers. The selector gets the
  // sum in each period, because the other routers may already have load on a worker that this
  // router has just added.
  int64_t apply_at_us() const {
    return applied_us_ + (loads_.version() != applied_version_ ? period_us() / 20 : period_us());
  }

  const LoadSharingConfig config_;
  const LoadExchange exchange_;
  const std::shared_ptr<stream::Context> context_ = stream::Context::Create();
  std::shared_ptr<stream::Waker> waker_;
  std::unique_ptr<stream::Poller> poller_;
  std::atomic<bool> woken_{false};  // set by the poller
  std::atomic<bool> ready_{true};   // set by the poller
  stream::Poller::Watch wake_watch_;
  // Must be destroyed after pub_ is closed.
  stream::ReceiveLimit limit_{stream::ReceiveLimit::kSubscriberBytes};
  std::unique_ptr<stream::Guard> guard_;  // must be destroyed after pub_ is closed
  stream::Socket pub_;                    // after Start, only thread_ uses the sockets
  std::string endpoint_;
  stream::NameResolver resolver_{{}};
  std::vector<std::unique_ptr<PeerLink>> links_;  // the next read begins with the first
  PeerLoads loads_;                               // only thread_ uses it
  PeerView view_;                                 // the latest view that the selector got
  uint64_t applied_version_ = 0;
  int64_t applied_us_ = 0;
  uint64_t seq_ = 0;
  int64_t sent_us_ = 0;
  std::atomic<bool> changed_{true};
  std::atomic<bool> stopping_{false};
  mutable Mutex mutex_;
  LoadSharingCounters counters_ KV_GUARDED_BY(mutex_);
  std::thread thread_;
};

Status LoadSharing::Impl::Bind() {
  auto socket = stream::Socket::Create(context_, ZMQ_PUB);
  if (!socket.ok()) return socket.status();
  pub_ = std::move(socket).value();
  pub_.SetOption(ZMQ_LINGER, kPubLingerMs);
  pub_.SetOption(ZMQ_SNDHWM, kUnsentGauges);
  pub_.SetOption(ZMQ_TCP_MAXRT, kStalledPeerMs);
  pub_.SetOption(ZMQ_MAXMSGSIZE, kMaxPeerFrameBytes);
  if (config_.endpoint.find('[') != std::string::npos) pub_.SetOption(ZMQ_IPV6, 1);
  if (config_.curve) {
    auto guard = stream::Guard::Create(context_, pub_,
                                       {.server = *config_.curve,
                                        .roles = {CurveRole::kSubscribe},
                                        .limit = &limit_,
                                        .wake = [waker = waker_] { waker->Wake(); }});
    if (!guard.ok()) return guard.status();
    guard_ = std::move(guard).value();
  } else if (const Status monitored = limit_.Monitor(pub_); !monitored.ok()) {
    return monitored;
  }
  if (Status status = pub_.Bind(config_.endpoint); !status.ok()) return status;
  endpoint_ = pub_.last_endpoint();
  return Status();
}

Status LoadSharing::Impl::Start() {
  auto waker = stream::Waker::Create();
  if (!waker.ok()) return waker.status();
  waker_ = std::move(waker).value();
  auto poller = stream::Poller::Create();
  if (!poller.ok()) return poller.status();
  poller_ = std::move(poller).value();
  auto watch = poller_->Add(waker_->descriptor(), &woken_);
  if (!watch.ok()) return watch.status();
  wake_watch_ = std::move(watch).value();
  const Status bound = config_.endpoint.empty() ? Status() : Bind();
  if (!bound.ok()) return Status(bound.code(), "load endpoint: " + bound.message());
  for (const LoadPeer& peer : config_.peers) {
    links_.push_back(
        std::make_unique<PeerLink>(peer, config_.curve_keys, context_, *poller_, &ready_));
  }
  const int64_t now_us = config_.now_us();
  sent_us_ = now_us - period_us();  // the first message is due
  applied_us_ = now_us;
  thread_ = std::thread([this] { Run(); });
  return Status();
}

void LoadSharing::Impl::Stop() {
  stopping_ = true;
  if (thread_.joinable()) {
    waker_->Wake();
    thread_.join();
  }
  links_.clear();
  pub_.Close();
}

void LoadSharing::Impl::Run() {
  while (!stopping_) {
    const int64_t now_us = config_.now_us();
    if (woken_.exchange(false)) waker_->Drain();
    if (guard_ != nullptr) guard_->HandleWake(pub_);
    for (const auto& link : links_) link->Advance(resolver_, now_us / 1000);
    if (publish_at_us() <= now_us) Publish(now_us);
    if (ready_.exchange(false)) Read(now_us);
    loads_.Expire(now_us);
    NoteView();
    if (apply_at_us() <= now_us) Apply(now_us);
    poller_->Wait(WaitMs(now_us));
  }
}

// Advance must be called in each period, for lookups in progress and for silent peers.
int64_t LoadSharing::Impl::WaitMs(int64_t now_us) const {
  if (ready_) return 0;
  int64_t next_us = std::min({now_us + period_us(), publish_at_us(), apply_at_us()});
  if (const auto expires_us = loads_.expires_us()) next_us = std::min(next_us, *expires_us);
  return std::max<int64_t>(next_us - now_us + 999, 0) / 1000;
}

// Takes at most one message of each peer. The decoding of large messages takes time, in which the
// load of this router is not published. So a read that takes too long ends, and the next read
// continues with the next peer.
void LoadSharing::Impl::Read(int64_t now_us) {
  for (size_t i = 0; i < links_.size(); ++i) {
    PeerLink& link = *links_.front();
    std::rotate(links_.begin(), links_.begin() + 1, links_.end());
    const auto frames = link.Receive(now_us / 1000);
    if (!frames) continue;
    ready_ = true;  // further messages may wait
    Take(*frames, now_us);
    if (config_.now_us() - now_us >= period_us() / kReadsPerPeriod) return;
  }
}

void LoadSharing::Impl::Take(stream::Frames frames, int64_t now_us) {
  LoadGauge gauge;
  GaugeReject malformed = GaugeReject::kMalformed;
  std::optional<GaugeReject> reject;
  if (frames.size() != 1 || !DecodeGauge(frames[0], gauge, malformed)) {
    reject = malformed;
  } else {
    reject = loads_.Take(std::move(gauge), now_us);
  }
  const MutexLock lock(mutex_);
  ++counters_.received;
  if (reject) ++counters_.rejected[static_cast<size_t>(*reject)];
}

void LoadSharing::Impl::NoteView() {
  const PeerView view = loads_.view();
  if (view == view_) return;
  view_ = view;
  exchange_.set_view(view);
}

void LoadSharing::Impl::Apply(int64_t now_us) {
  applied_version_ = loads_.version();
  applied_us_ = now_us;
  exchange_.set_others(loads_.Sum());
}

void LoadSharing::Impl::Publish(int64_t now_us) {
  changed_ = false;  // before the load is read, so that no change is missed
  sent_us_ = now_us;
  const auto bytes = EncodeGauge({.origin = config_.name,
                                  .epoch = config_.epoch,
                                  .seq = ++seq_,
                                  .period_ms = config_.period_ms,
                                  .load = exchange_.own()});
  // A PUB socket never blocks: it drops messages for a slow subscriber.
  if (bytes.ok()) pub_.Send(*bytes, /*more=*/false);
  const MutexLock lock(mutex_);
  ++(bytes.ok() ? counters_.sent : counters_.unsent);
}

LoadSharingCounters LoadSharing::Impl::counters() const {
  LoadSharingCounters counters;
  {
    const MutexLock lock(mutex_);
    counters = counters_;
  }
  counters.flooding_peers = limit_.ended();
  if (guard_ == nullptr) return counters;
  counters.refused = guard_->refused();
  counters.access_list_failures = config_.curve->clients->failed_refreshes();
  return counters;
}

LoadSharing::LoadSharing(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LoadSharing::~LoadSharing() = default;

Result<std::unique_ptr<LoadSharing>> LoadSharing::Create(LoadSharingConfig config,
                                                         LoadExchange exchange) {
  auto impl = std::make_unique<Impl>(std::move(config), std::move(exchange));
  if (Status started = impl->Start(); !started.ok()) return started;
  return std::unique_ptr<LoadSharing>(new LoadSharing(std::move(impl)));
}

void LoadSharing::NoteChange() { impl_->NoteChange(); }
void LoadSharing::Stop() { impl_->Stop(); }
const LoadSharingConfig& LoadSharing::config() const { return impl_->config(); }
const std::string& LoadSharing::endpoint() const { return impl_->endpoint(); }
LoadSharingCounters LoadSharing::counters() const { return impl_->counters(); }

}  // namespace kvcast::router
