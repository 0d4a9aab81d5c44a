// SPDX-License-Identifier: Apache-2.0
#include "kvcast/stream/publisher.h"

#include <random>
#include <system_error>
#include <utility>
#include <vector>

#include "src/base/clock.h"
#include "src/stream/net/gate.h"
#include "src/stream/net/receive_limit.h"
#include "src/stream/net/socket.h"
#include "src/stream/publish/heartbeat_thread.h"
#include "src/stream/publish/live_sender.h"
#include "src/stream/publish/publisher_core.h"
#include "src/stream/publish/replay_server.h"
#include "src/stream/publish/send_loop.h"

namespace kvcast {
namespace {

using stream::Context;
using stream::Guard;
using stream::ReceiveLimit;
using stream::Socket;

// Linger time of the PUB socket in milliseconds: the longest time that the destructor waits until
// ZeroMQ has sent the messages.
constexpr int kFlushMs = 1000;
constexpr int kReplayLingerMs = 50;  // linger time of the ROUTER socket
// A replay request and a subscription have a few bytes. If a peer sends a larger frame than this,
// its connection is closed.
constexpr int64_t kMaxRequestFrameBytes = 64 << 10;
constexpr int64_t kMaxSubscriptionFrameBytes = 4 << 10;

Status CheckConfig(const PublisherConfig& config) {
  if (config.endpoint.empty()) return {StatusCode::kInvalidArgument, "endpoint is empty"};
  if (config.ring_batches == 0)
    return {StatusCode::kInvalidArgument, "ring_batches: must be positive"};
  if (config.heartbeat_ms < 0) return {StatusCode::kInvalidArgument, "heartbeat_ms is negative"};
  if (config.flush_ms < 0) return {StatusCode::kInvalidArgument, "flush_ms is negative"};
  if (config.resume && (config.replay_endpoint.empty() || !config.extension))
    return {StatusCode::kInvalidArgument, "resume needs a replay endpoint and KVX1"};
  if (config.send_hwm < 0) return {StatusCode::kInvalidArgument, "send_hwm is negative"};
  if (!(config.replay_requests_per_s >= 0 && config.replay_bytes_per_s >= 0)) {
    return {StatusCode::kInvalidArgument,
            "replay_requests_per_s or replay_bytes_per_s is negative or NaN"};
  }
  return Status();
}

Epoch RandomEpoch() {
  std::random_device device;
  const auto word = [&device] { return uint64_t{device()} << 32 | device(); };
  return {word(), word()};
}

// If the publisher has a context of its own, its destructor waits only for the messages of this
// publisher. The ports are free when the destructor returns.
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

void AddTo(RefusedConnections& sum, const RefusedConnections& more) {
  sum.no_key += more.no_key;
  sum.wrong_server_key += more.wrong_server_key;
  sum.not_allowed += more.not_allowed;
  sum.broken += more.broken;
}

// A socket, its guard and its limit. The guard and the limit must be destroyed after the socket is
// closed.
struct GuardedSocket {
  std::unique_ptr<ReceiveLimit> limit;
  std::unique_ptr<Guard> guard;  // nullptr: no CURVE
  Socket socket;
};

Result<GuardedSocket> Protect(Socket socket, const std::shared_ptr<Context>& context,
                              const std::optional<CurveServer>& curve, uint64_t max_bytes,
                              Guard::Config config) {
  GuardedSocket protected_socket{std::make_unique<ReceiveLimit>(max_bytes), nullptr,
                                 std::move(socket)};
  if (!curve) {
    const Status monitored = protected_socket.limit->Monitor(protected_socket.socket);
    if (!monitored.ok()) return monitored;
    return protected_socket;
  }
  config.limit = protected_socket.limit.get();
  config.server = *curve;
  auto guard = Guard::Create(context, protected_socket.socket, std::move(config));
  if (!guard.ok()) return guard.status();
  protected_socket.guard = std::move(guard).value();
  return protected_socket;
}

Result<GuardedSocket> OpenPub(const PublisherConfig& config,
                              const std::shared_ptr<Context>& context, const std::string& endpoint,
                              std::function<void()> wake) {
  Result<Socket> pub = OpenSocket(context, ZMQ_PUB, endpoint, config.send_hwm, kFlushMs);
  if (!pub.ok()) return pub.status();
  pub->SetOption(ZMQ_MAXMSGSIZE, kMaxSubscriptionFrameBytes);
  const bool binds = config.binds.value_or(BindsEndpoint(endpoint));
  Result<GuardedSocket> guarded =
      Protect(std::move(pub).value(), context, config.curve, ReceiveLimit::kSubscriberBytes,
              {.roles = {CurveRole::kSubscribe}, .connects = !binds, .wake = std::move(wake)});
  if (!guarded.ok()) return guarded;
  Socket& socket = guarded->socket;
  const Status status = binds ? socket.Bind(endpoint) : socket.Connect(endpoint);
  if (!status.ok()) return status;
  return guarded;
}

// A ROUTER with ZMQ_ROUTER_MANDATORY and without a high-water mark never drops replies silently.
// ReplayCredit bounds the memory of the replies. A client that does not read delays the destructor
// by the linger time. The linger time must not be 0: libzmq 4.3.4 aborts the process if a
// connection breaks while a reply is half sent and the socket is closing without a linger time
// (libzmq issue 3442).
Result<GuardedSocket> OpenRouter(const PublisherConfig& config,
                                 const std::shared_ptr<Context>& context,
                                 const std::string& endpoint, std::function<void()> wake) {
  Result<Socket> router =
      OpenSocket(context, ZMQ_ROUTER, endpoint, /*send_hwm=*/0, kReplayLingerMs);
  if (!router.ok()) return router.status();
  router->SetOption(ZMQ_ROUTER_MANDATORY, 1);
  router->SetOption(ZMQ_MAXMSGSIZE, kMaxRequestFrameBytes);
  Result<GuardedSocket> guarded =
      Protect(std::move(router).value(), context, config.curve, ReceiveLimit::kClientBytes,
              {.roles = {CurveRole::kReplay, CurveRole::kSnapshot}, .wake = std::move(wake)});
  if (!guarded.ok()) return guarded;
  if (Status status = guarded->socket.Bind(endpoint); !status.ok()) return status;
  return guarded;
}

// The parts of a state may be large, so the publisher must not keep them.
PublisherConfig WithoutResume(PublisherConfig config) {
  config.resume.reset();
  return config;
}

}  // namespace

// The members stop in reverse order of their declaration.
class Publisher::Impl {
 public:
  explicit Impl(const PublisherConfig& c)
      : config(WithoutResume(c)), resume(c.resume), core(config, c.now_us) {}
  ~Impl() {
    heartbeats.reset();
    if (live == nullptr) return;
    (void)core.Flush();
    loop->Remove(*live);
    while (live->Send() != stream::LiveSender::Sent::kNothing) {
    }
  }

  Status Open();
  Status OpenReplay(const std::shared_ptr<Context>& context, const std::string& endpoint_of_rank);
  Status KeepState();

  const PublisherConfig config;
  std::shared_ptr<const PublishedState> resume;  // nullptr after Open
  std::string endpoint;
  std::string replay_endpoint;
  // `loop` and the first members of `core` are in one cache line, because each Publish uses them.
  alignas(64) std::shared_ptr<stream::SendLoop> loop;
  stream::PublisherCore core;
  // The limits and the guards must be destroyed after their sockets.
  std::unique_ptr<ReceiveLimit> pub_limit;
  std::unique_ptr<ReceiveLimit> replay_limit;
  std::unique_ptr<Guard> pub_guard;
  std::unique_ptr<Guard> replay_guard;
  std::unique_ptr<stream::LiveSender> live;
  std::unique_ptr<stream::ReplayServer> replay;
  std::unique_ptr<stream::HeartbeatThread> heartbeats;
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
  loop = config.shares_threads ? stream::SendLoop::Shared() : std::make_shared<stream::SendLoop>();
  auto pub = OpenPub(config, context, *bound, [sends = loop] { sends->Notice(); });
  if (!pub.ok()) return pub.status();
  endpoint = pub->socket.last_endpoint();
  pub_limit = std::move(pub->limit);
  pub_guard = std::move(pub->guard);
  std::function<bool()> holds;
  if (config.holds_while_silent) holds = [this] { return core.silent(); };
  live = std::make_unique<stream::LiveSender>(std::move(pub->socket), config.topic, core.ring(),
                                              pub_guard.get(), std::move(holds));
  loop->Add(*live);
  if (!replay_of_rank->empty()) {
    if (Status status = OpenReplay(context, *replay_of_rank); !status.ok()) return status;
  }
  if (core.needs_ticks()) heartbeats = std::make_unique<stream::HeartbeatThread>(core, *loop);
  return Status();
}

Status Publisher::Impl::KeepState() {
  if (!config.extension) return Status();
  const Epoch epoch = config.epoch ? *config.epoch : RandomEpoch();
  if (!resume) {
    core.KeepState(epoch);
    return Status();
  }
  const Status kept = core.KeepState(epoch, *std::exchange(resume, nullptr));
  return kept.ok() ? kept : Status(StatusCode::kInvalidArgument, "resume: " + kept.message());
}

Status Publisher::Impl::OpenReplay(const std::shared_ptr<Context>& context,
                                   const std::string& endpoint_of_rank) {
  Result<std::shared_ptr<stream::Waker>> waker = stream::Waker::Create();
  if (!waker.ok()) return waker.status();
  const Result<std::string> bound = NodeEndpoint(endpoint_of_rank, config.host_ip);
  if (!bound.ok()) return bound.status();
  auto router = OpenRouter(config, context, *bound, [held = *waker] { held->Wake(); });
  if (!router.ok()) return router.status();
  replay_endpoint = router->socket.last_endpoint();
  replay_limit = std::move(router->limit);
  replay_guard = std::move(router->guard);
  if (Status kept = KeepState(); !kept.ok()) return kept;
  stream::ReplayServerConfig server;
  server.topic = config.topic;
  server.layout = config.replay_layout;
  server.rate = {config.replay_requests_per_s, config.replay_bytes_per_s};
  server.now_us = [this] { return core.NowUs(); };
  server.silent = [this] { return core.silent(); };
  server.guard = replay_guard.get();
  server.limit = replay_limit.get();
  replay = std::make_unique<stream::ReplayServer>(std::move(router->socket), *waker, server,
                                                  core.ring(), core.state());
  return Status();
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
  Result<Seq> seq = impl_->core.Publish(std::move(batch));
  impl_->loop->Notice();
  return seq;
}

void Publisher::Add(std::vector<Event> events, double ts) {
  impl_->core.Add(std::move(events), ts);
}

Status Publisher::Flush() {
  const Status status = impl_->core.Flush();
  impl_->loop->Notice();
  return status;
}

Result<Seq> Publisher::PublishPayload(std::span<const uint8_t> payload, std::optional<double> ts) {
  Result<Seq> seq = impl_->core.PublishPayload(payload, ts);
  impl_->loop->Notice();
  return seq;
}

std::optional<PublisherStatus> Publisher::status() const {
  if (impl_->core.state() == nullptr) return std::nullopt;
  return impl_->core.state()->Status(/*buckets=*/false);
}

std::optional<PublishedState> Publisher::state() const {
  std::optional<PublishedSnapshot> snapshot = Snapshot();
  if (!snapshot) return std::nullopt;
  while (snapshot->Write()) {
  }
  return std::move(snapshot->state);
}

std::optional<PublishedSnapshot> Publisher::Snapshot() const {
  if (impl_->core.state() == nullptr) return std::nullopt;
  stream::StateSnapshot made = impl_->core.state()->Snapshot(residency::BucketMask().set());
  PublishedSnapshot snapshot{{std::move(made.status), std::move(made.parts)}};
  if (made.writer == nullptr) return snapshot;
  const std::shared_ptr<residency::SnapshotWriter> writer = std::move(made.writer);
  snapshot.step = [writer](std::vector<PublishedPayload>& parts) { return writer->Step(parts); };
  return snapshot;
}

std::vector<PublishedBatch> Publisher::Read(Seq start, size_t limit) const {
  std::vector<stream::RingEntry> entries;
  stream::ReplayRing& ring = impl_->core.ring();
  ring.Read(start.value, ring.next_seq(), limit, entries);
  std::vector<PublishedBatch> batches;
  batches.reserve(entries.size());
  for (stream::RingEntry& entry : entries) {
    batches.push_back({Seq(entry.seq), std::move(entry.payload)});
  }
  return batches;
}

bool Publisher::too_large() const {
  return impl_->core.state() != nullptr && impl_->core.state()->too_large();
}

void Publisher::SetSilent(bool silent) {
  SpeakUntil(silent ? stream::PublisherCore::kSilentAtOnce : stream::PublisherCore::kNeverSilent);
}

void Publisher::SpeakUntil(int64_t time_us) {
  const int64_t before_us = impl_->core.SpeakUntil(time_us);
  if (time_us > before_us && impl_->config.holds_while_silent) impl_->loop->Wake();
}

Seq Publisher::next_seq() const { return Seq(impl_->core.ring().next_seq()); }
const std::string& Publisher::endpoint() const { return impl_->endpoint; }
const std::string& Publisher::replay_endpoint() const { return impl_->replay_endpoint; }

PublisherCounters Publisher::counters() const {
  const stream::RingCounters ring = impl_->core.ring().counters();
  PublisherCounters counters;
  counters.batches = ring.batches;
  counters.bytes = ring.bytes;
  counters.encode_errors = impl_->core.encode_errors();
  counters.heartbeats = impl_->core.heartbeats();
  counters.live_dropped = ring.unsent_dropped;
  for (const Guard* guard : {impl_->pub_guard.get(), impl_->replay_guard.get()}) {
    if (guard != nullptr) AddTo(counters.refused, guard->refused());
  }
  for (const ReceiveLimit* limit : {impl_->pub_limit.get(), impl_->replay_limit.get()}) {
    if (limit != nullptr) counters.flooding_peers += limit->ended();
  }
  if (impl_->config.curve) {
    counters.access_list_failures = impl_->config.curve->clients->failed_refreshes();
  }
  if (impl_->replay == nullptr) return counters;
  const stream::ReplayCounters& replay = impl_->replay->counters();
  counters.replay_requests = replay.requests;
  counters.replay_batches = replay.batches;
  counters.replay_delays = replay.delays;
  counters.replay_rejects = replay.rejects;
  counters.replay_dropped = replay.dropped;
  counters.replay_denied = impl_->replay->denied();
  return counters;
}

}  // namespace kvcast
