// SPDX-License-Identifier: Apache-2.0
#include "kvcast/stream/publisher.h"

#include <atomic>
#include <chrono>
#include <limits>
#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "src/base/mutex.h"
#include "src/residency/mirror.h"
#include "src/stream/live_sender.h"
#include "src/stream/pending_events.h"
#include "src/stream/replay_ring.h"
#include "src/stream/replay_server.h"
#include "src/stream/send_loop.h"
#include "src/stream/socket.h"
#include "src/stream/state_keeper.h"
#include "src/wire/encodable.h"

namespace kvcast {
namespace {

using stream::Context;
using stream::Socket;

// How long destruction waits for subscribers to take what was sent.
constexpr int kFlushMs = 1000;
// A replay request is a few bytes; a client that sends more than this in a frame is cut off.
constexpr int64_t kMaxRequestFrameBytes = 64 << 10;

Status CheckConfig(const PublisherConfig& config) {
  if (config.endpoint.empty()) return {StatusCode::kInvalidArgument, "no endpoint to publish on"};
  if (config.ring_batches == 0) return {StatusCode::kInvalidArgument, "ring_batches is 0"};
  if (config.heartbeat_ms < 0) return {StatusCode::kInvalidArgument, "heartbeat_ms is negative"};
  if (config.flush_ms < 0) return {StatusCode::kInvalidArgument, "flush_ms is negative"};
  if (config.send_hwm < 0) return {StatusCode::kInvalidArgument, "send_hwm is negative"};
  if (!(config.replay_requests_per_s >= 0 && config.replay_bytes_per_s >= 0)) {
    return {StatusCode::kInvalidArgument, "a replay rate is negative"};
  }
  return Status();
}

Epoch RandomEpoch() {
  std::random_device device;
  const auto word = [&device] { return uint64_t{device()} << 32 | device(); };
  return {word(), word()};
}

// A context of its own makes destruction wait for exactly this publisher's messages and frees its
// ports before it returns.
std::shared_ptr<Context> ContextFor(const std::string& endpoint, const std::string& replay,
                                    bool shares_threads) {
  const bool inproc = endpoint.starts_with("inproc://") || replay.starts_with("inproc://");
  if (inproc) return Context::Shared();
  return shares_threads ? Context::SharedInBackground() : Context::CreateInBackground();
}

Result<Socket> OpenSocket(std::shared_ptr<Context> context, int type, const std::string& endpoint,
                          int send_hwm, int linger_ms) {
  Result<Socket> socket = Socket::Create(std::move(context), type);
  if (!socket.ok()) return socket;
  socket->SetOption(ZMQ_SNDHWM, send_hwm);
  socket->SetOption(ZMQ_LINGER, linger_ms);
  if (endpoint.find('[') != std::string::npos) socket->SetOption(ZMQ_IPV6, 1);
  return socket;
}

Result<Socket> OpenPub(const PublisherConfig& config, std::shared_ptr<Context> context,
                       const std::string& endpoint) {
  Result<Socket> pub = OpenSocket(std::move(context), ZMQ_PUB, endpoint, config.send_hwm, kFlushMs);
  if (!pub.ok()) return pub;
  const Status status = BindsEndpoint(endpoint) ? pub->Bind(endpoint) : pub->Connect(endpoint);
  if (!status.ok()) return status;
  return pub;
}

// A mandatory ROUTER without a high-water mark never drops silently; ReplayCredit is the bound.
// Replies in flight do not hold up destruction: a client that does not read would.
Result<Socket> OpenRouter(std::shared_ptr<Context> context, const std::string& endpoint) {
  Result<Socket> router = OpenSocket(std::move(context), ZMQ_ROUTER, endpoint, /*send_hwm=*/0,
                                     /*linger_ms=*/0);
  if (!router.ok()) return router;
  router->SetOption(ZMQ_ROUTER_MANDATORY, 1);
  router->SetOption(ZMQ_MAXMSGSIZE, kMaxRequestFrameBytes);
  if (Status status = router->Bind(endpoint); !status.ok()) return status;
  return router;
}

}  // namespace

// Parts in the order in which they start; they stop in reverse.
class Publisher::Impl {
 public:
  explicit Impl(const PublisherConfig& c)
      : config(c), ring(c.ring_batches, c.ring_bytes, c.dialect), pending(c.flush_ms) {}
  ~Impl() {
    keeper.reset();
    if (loop == nullptr) return;
    (void)FlushPending();
    loop->Remove(*live);
    while (live->Send() != stream::LiveSender::Sent::kNothing) {
    }
  }

  Status Open();
  Status OpenReplay(std::shared_ptr<Context> context, const std::string& endpoint_of_rank);
  // A batch or a payload.
  template <typename Published>
  Seq Append(Published&& published);
  // No subscriber can get this number; the mirror keeps the batch's events where it can.
  void Refuse(const EventBatch* batch);
  Result<Seq> PublishBatch(EventBatch&& batch);
  Status FlushPending();
  Status FlushPendingLocked() KV_REQUIRES(pending_mutex);
  void FlushIfDue();
  void NoteTime(double ts);
  void PublishHeartbeat();

  const PublisherConfig config;
  std::string endpoint;
  std::string replay_endpoint;
  std::atomic<uint64_t> encode_errors{0};
  std::atomic<uint64_t> heartbeats{0};
  // The batches' time less the steady clock's, in seconds; NaN before the first batch.
  std::atomic<double> clock_offset_s{std::numeric_limits<double>::quiet_NaN()};
  stream::ReplayRing ring;
  // Held while pending events get their number: no batch that is published later comes before it.
  Mutex pending_mutex;
  stream::PendingEvents pending KV_GUARDED_BY(pending_mutex);
  // Written under pending_mutex: set before Add returns, cleared after the pending events have
  // their number. A Publish that reads false needs no lock.
  std::atomic<bool> has_pending{false};
  std::unique_ptr<stream::PublisherState> state;
  std::unique_ptr<stream::LiveSender> live;
  std::shared_ptr<stream::SendLoop> loop;
  std::unique_ptr<stream::ReplayServer> replay;
  std::unique_ptr<stream::StateKeeper> keeper;
};

Status Publisher::Impl::Open() {
  const Result<std::string> pub_of_rank =
      EndpointForRank(config.endpoint, config.data_parallel_rank);
  if (!pub_of_rank.ok()) return pub_of_rank.status();
  const Result<std::string> replay_of_rank =
      EndpointForRank(config.replay_endpoint, config.data_parallel_rank);
  if (!replay_of_rank.ok()) return replay_of_rank.status();
  const std::shared_ptr<Context> context =
      ContextFor(*pub_of_rank, *replay_of_rank, config.shares_threads);
  const Result<std::string> bound = NodeEndpoint(*pub_of_rank, config.host_ip);
  if (!bound.ok()) return bound.status();
  Result<Socket> pub = OpenPub(config, context, *bound);
  if (!pub.ok()) return pub.status();
  endpoint = pub->last_endpoint();
  live = std::make_unique<stream::LiveSender>(std::move(pub).value(), config.topic, ring);
  loop = config.shares_threads ? stream::SendLoop::Shared() : std::make_shared<stream::SendLoop>();
  loop->Add(*live);
  if (!replay_of_rank->empty()) {
    if (Status status = OpenReplay(context, *replay_of_rank); !status.ok()) return status;
  }
  if (state == nullptr && config.heartbeat_ms == 0 && config.flush_ms == 0) return Status();
  keeper = std::make_unique<stream::StateKeeper>(
      ring, state.get(), config.heartbeat_ms, [this] { FlushIfDue(); },
      [this] { PublishHeartbeat(); });
  return Status();
}

Status Publisher::Impl::OpenReplay(std::shared_ptr<Context> context,
                                   const std::string& endpoint_of_rank) {
  Result<std::shared_ptr<stream::Waker>> waker = stream::Waker::Create();
  if (!waker.ok()) return waker.status();
  const Result<std::string> bound = NodeEndpoint(endpoint_of_rank, config.host_ip);
  if (!bound.ok()) return bound.status();
  Result<Socket> router = OpenRouter(std::move(context), *bound);
  if (!router.ok()) return router.status();
  replay_endpoint = router->last_endpoint();
  if (config.extension) {
    state =
        std::make_unique<stream::PublisherState>(config.epoch ? *config.epoch : RandomEpoch(), ring,
                                                 config.dialect, config.data_parallel_rank);
  }
  replay = std::make_unique<stream::ReplayServer>(
      std::move(router).value(), *waker, config.topic, config.replay_layout, ring, state.get(),
      stream::ReplayRate{config.replay_requests_per_s, config.replay_bytes_per_s});
  return Status();
}

template <typename Published>
Seq Publisher::Impl::Append(Published&& published) {
  const Seq seq(ring.Append(std::forward<Published>(published)));
  loop->Notice();
  return seq;
}

void Publisher::Impl::Refuse(const EventBatch* batch) {
  ++encode_errors;
  std::optional<EventBatch> known;
  if (batch != nullptr && state != nullptr) {
    known = residency::MirroredPart(*batch);
    if (!wire::CheckEncodable(*known).ok()) known.reset();
  }
  ring.AppendRefused(std::move(known));
  loop->Notice();
}

namespace {

double SteadySeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t SteadyMs() { return static_cast<int64_t>(SteadySeconds() * 1000); }

}  // namespace

void Publisher::Impl::NoteTime(double ts) { clock_offset_s = ts - SteadySeconds(); }

void Publisher::Impl::PublishHeartbeat() {
  EventBatch batch;
  batch.ts = clock_offset_s + SteadySeconds();
  if (!(batch.ts == batch.ts)) return;
  batch.data_parallel_rank = config.data_parallel_rank;
  Append(std::move(batch));
  ++heartbeats;
}

Result<Seq> Publisher::Impl::PublishBatch(EventBatch&& batch) {
  if (!batch.data_parallel_rank) batch.data_parallel_rank = config.data_parallel_rank;
  NoteTime(batch.ts);
  if (Status status = wire::CheckEncodable(batch); !status.ok()) {
    Refuse(&batch);
    return status;
  }
  return Append(std::move(batch));
}

Status Publisher::Impl::FlushPending() {
  MutexLock lock(pending_mutex);
  return FlushPendingLocked();
}

Status Publisher::Impl::FlushPendingLocked() {
  if (pending.empty()) return Status();
  const Status status = PublishBatch(pending.Take()).status();
  has_pending.store(false, std::memory_order_release);
  return status;
}

void Publisher::Impl::FlushIfDue() {
  MutexLock lock(pending_mutex);
  // A batch that is refused is counted, and its number is a gap.
  if (pending.Due(SteadyMs())) (void)FlushPendingLocked();
}

Publisher::Publisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Publisher::~Publisher() = default;

Result<std::unique_ptr<Publisher>> Publisher::Create(const PublisherConfig& config) {
  if (Status status = CheckConfig(config); !status.ok()) return status;
  auto impl = std::make_unique<Impl>(config);
  try {
    if (Status status = impl->Open(); !status.ok()) return status;
  } catch (const std::system_error& error) {
    return Status(StatusCode::kUnavailable, std::string("cannot start a thread: ") + error.what());
  }
  return std::unique_ptr<Publisher>(new Publisher(std::move(impl)));
}

Result<Seq> Publisher::Publish(EventBatch batch) {
  if (!impl_->has_pending.load(std::memory_order_acquire)) {
    return impl_->PublishBatch(std::move(batch));
  }
  MutexLock lock(impl_->pending_mutex);
  impl_->pending.MoveTo(batch);
  Result<Seq> seq = impl_->PublishBatch(std::move(batch));
  impl_->has_pending.store(false, std::memory_order_release);
  return seq;
}

void Publisher::Add(std::vector<Event> events, double ts) {
  MutexLock lock(impl_->pending_mutex);
  impl_->pending.Add(std::move(events), ts, SteadyMs());
  impl_->has_pending.store(!impl_->pending.empty(), std::memory_order_release);
}

Status Publisher::Flush() { return impl_->FlushPending(); }

Result<Seq> Publisher::PublishPayload(std::span<const uint8_t> payload) {
  MutexLock lock(impl_->pending_mutex);
  (void)impl_->FlushPendingLocked();  // a refused one is counted, and its number is a gap
  if (payload.empty()) {
    impl_->Refuse(nullptr);
    return Status(StatusCode::kInvalidArgument, "an empty payload is the end marker of a replay");
  }
  return impl_->Append(
      std::make_shared<const std::vector<uint8_t>>(payload.begin(), payload.end()));
}

Seq Publisher::next_seq() const { return Seq(impl_->ring.next_seq()); }
const std::string& Publisher::endpoint() const { return impl_->endpoint; }
const std::string& Publisher::replay_endpoint() const { return impl_->replay_endpoint; }

PublisherCounters Publisher::counters() const {
  const stream::RingCounters ring = impl_->ring.counters();
  PublisherCounters counters;
  counters.batches = ring.batches;
  counters.bytes = ring.bytes;
  counters.encode_errors = impl_->encode_errors;
  counters.heartbeats = impl_->heartbeats;
  counters.live_dropped = ring.unsent_dropped;
  if (impl_->replay == nullptr) return counters;
  const stream::ReplayCounters& replay = impl_->replay->counters();
  counters.replay_requests = replay.requests;
  counters.replay_batches = replay.batches;
  counters.replay_delays = replay.delays;
  counters.replay_rejects = replay.rejects;
  counters.replay_dropped = replay.dropped;
  return counters;
}

}  // namespace kvcast
