// SPDX-License-Identifier: Apache-2.0
#include "router/service/relay/relay.h"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "kvcast/core/redact.h"
#include "kvcast/core/tier.h"
#include "kvcast/router/worker_config.h"
#include "kvcast/wire/wire.h"
#include "router/service/relay/relay_queue.h"
#include "router/service/relay/relay_topic.h"
#include "router/service/relay/topic_numbers.h"
#include "src/base/clock.h"
#include "src/base/mutex.h"
#include "src/stream/net/gate.h"
#include "src/stream/net/socket.h"

namespace kvcast::router {
namespace {

constexpr int64_t kFreeingPeriodUs = 100000;
constexpr int kLingerMs = 50;  // linger time of the PUB socket
// A subscription has a few bytes. If a peer sends a larger frame, its connection is closed.
constexpr int64_t kMaxSubscriptionFrameBytes = 4 << 10;

// -1: there is no group, or its number is out of range. A worker thus has a bounded number of
// topics.
int64_t GroupOf(std::optional<int64_t> group) {
  return group && *group >= 0 && *group < kMaxGroups ? *group : -1;
}

// True: a known event could not be decoded. Its topic is not known. An event with an unknown tag
// has no topic.
bool LacksEvents(const DecodeCounts& counts) {
  return counts.rejected_total() > counts.rejected[static_cast<size_t>(Reject::kUnknownEvent)];
}

struct GroupTierOf {
  std::pair<Tier, int64_t> operator()(const BlockStored& event) const {
    return {TierOf(event.medium), GroupOf(event.group_idx)};
  }
  std::pair<Tier, int64_t> operator()(const BlockRemoved& event) const {
    return {TierOf(event.medium), GroupOf(event.group_idx)};
  }
  std::pair<Tier, int64_t> operator()(const AllBlocksCleared& event) const {
    return {TierOf(event.medium), -1};
  }
};

}  // namespace

class Relay::Impl {
 public:
  explicit Impl(const RelayConfig& config) : config_(config) {}
  ~Impl() { Stop(); }
  Status Start();
  void Post(Posted posted);
  size_t payload_max() const { return config_.queue_bytes_max / 2; }
  void Restart(const std::string& worker);
  void Forget(const std::string& worker);
  const std::string& endpoint() const { return endpoint_; }
  RelayCounters counters() const;

 private:
  Status Open();
  void Stop();
  void Run();
  RelayQueue EmptyQueue() const {
    return RelayQueue(config_.queue_batches_max, config_.queue_bytes_max);
  }
  void Send(const Posted& posted);
  bool SendPart(const Posted& posted, const RelayTopic& topic, const EventBatch& part);
  void FreeUnsent();
  std::shared_ptr<void> Count(size_t bytes);

  const RelayConfig config_;
  std::atomic<size_t> unsent_bytes_{0};  // must outlive context_, whose destructor frees messages
  const std::shared_ptr<stream::Context> context_ = stream::Context::Create();
  // Must be destroyed after socket_ is closed.
  stream::ReceiveLimit limit_{stream::ReceiveLimit::kSubscriberBytes};
  std::unique_ptr<stream::Guard> guard_;  // must be destroyed after socket_ is closed
  stream::Socket socket_;                 // after Start, only thread_ uses the socket
  std::string endpoint_;
  Mutex mutex_;
  CondVar wake_;
  RelayQueue queue_ KV_GUARDED_BY(mutex_) = EmptyQueue();
  uint64_t latest_run_ KV_GUARDED_BY(mutex_) = 0;
  std::map<std::string, uint64_t> runs_ KV_GUARDED_BY(mutex_);  // by worker
  std::vector<WorkerRun> removed_ KV_GUARDED_BY(mutex_);        // for numbers_
  bool renewing_ KV_GUARDED_BY(mutex_) = false;  // the guard needs a renewal of the socket
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  std::atomic<uint64_t> batches_{0};
  std::atomic<uint64_t> messages_{0};
  std::atomic<uint64_t> dropped_{0};
  TopicNumbers numbers_;  // only thread_ uses it
  std::thread thread_;
};

Status Relay::Impl::Open() {
  auto socket = stream::Socket::Create(context_, ZMQ_PUB);
  if (!socket.ok()) return socket.status();
  socket_ = std::move(socket).value();
  // The linger time must not be 0. Otherwise libzmq 4.3.4 aborts the process if a connection breaks
  // while a message is half sent and the socket is closing (libzmq issue 3442).
  socket_.SetOption(ZMQ_LINGER, kLingerMs);
  socket_.SetOption(ZMQ_SNDHWM, config_.send_hwm);
  socket_.SetOption(ZMQ_TCP_MAXRT, config_.stall_timeout_ms);
  socket_.SetOption(ZMQ_MAXMSGSIZE, kMaxSubscriptionFrameBytes);
  if (config_.endpoint.find('[') != std::string::npos) socket_.SetOption(ZMQ_IPV6, 1);
  if (config_.curve) {
    const auto wake = [this] {
      {
        const MutexLock lock(mutex_);
        renewing_ = true;
      }
      wake_.NotifyOne();
    };
    auto guard = stream::Guard::Create(context_, socket_,
                                       {.server = *config_.curve,
                                        .roles = {CurveRole::kSubscribe},
                                        .limit = &limit_,
                                        .wake = wake});
    if (!guard.ok()) return guard.status();
    guard_ = std::move(guard).value();
  } else if (const Status monitored = limit_.Monitor(socket_); !monitored.ok()) {
    return monitored;
  }
  return socket_.Bind(config_.endpoint);
}

Status Relay::Impl::Start() {
  if (const Status opened = Open(); !opened.ok()) {
    return Status(opened.code(), "relay: " + opened.message());
  }
  endpoint_ = socket_.last_endpoint();
  thread_ = std::thread([this] { Run(); });
  return Status();
}

RelayCounters Relay::Impl::counters() const {
  RelayCounters counters{.batches = batches_,
                         .messages = messages_,
                         .dropped = dropped_,
                         .unsent_bytes = unsent_bytes_,
                         .flooding_peers = limit_.ended()};
  if (guard_ == nullptr) return counters;
  counters.refused = guard_->refused();
  counters.access_list_failures = config_.curve->clients->failed_refreshes();
  return counters;
}

void Relay::Impl::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyOne();
  if (thread_.joinable()) thread_.join();
  socket_.Close();
  guard_.reset();  // until this call, the guard may wake this object
}

void Relay::Impl::Restart(const std::string& worker) {
  const MutexLock lock(mutex_);
  runs_[worker] = ++latest_run_;
}

void Relay::Impl::Forget(const std::string& worker) {
  const MutexLock lock(mutex_);
  const auto it = runs_.find(worker);
  if (it == runs_.end()) return;
  removed_.push_back({worker, it->second});
  runs_.erase(it);
}

void Relay::Impl::Post(Posted posted) {
  {
    const MutexLock lock(mutex_);
    const auto [run, added] = runs_.try_emplace(posted.from.worker, latest_run_ + 1);
    if (added) ++latest_run_;
    posted.from.run = run->second;
    dropped_ += queue_.Push(std::move(posted));
  }
  wake_.NotifyOne();
}

void Relay::Impl::Run() {
  while (true) {
    RelayQueue work = EmptyQueue();
    std::vector<WorkerRun> removed;
    {
      const MutexLock lock(mutex_);
      const auto idle = [this]() KV_REQUIRES(mutex_) {
        return queue_.workers().empty() && !stopping_ && !renewing_;
      };
      while (idle() && unsent_bytes_ == 0) wake_.Wait(mutex_);
      if (idle()) wake_.WaitUntil(mutex_, SteadyUs() + kFreeingPeriodUs);
      if (stopping_) return;
      renewing_ = false;
      std::swap(work, queue_);
      removed.swap(removed_);
    }
    if (guard_ != nullptr) guard_->HandleWake(socket_);
    if (unsent_bytes_ > 0) FreeUnsent();
    for (const auto& [name, worker] : work.workers()) {
      if (worker.lost_run) numbers_.NoteLost({name, *worker.lost_run});
      for (const Posted& posted : worker.batches) Send(posted);
    }
    for (const WorkerRun& worker : removed) numbers_.Forget(worker);
  }
}

void Relay::Impl::Send(const Posted& posted) {
  EventBatch batch;
  DecodeCounts counts;
  if (!DecodeBatch(posted.payload, WireLimits(), batch, counts).ok()) {
    ++dropped_;
    numbers_.NoteLost(posted.from);
    return;
  }
  if (config_.redact) Redact(batch);
  std::map<std::pair<Tier, int64_t>, EventBatch> parts;
  bool whole = true;
  const auto send_parts = [&] {
    for (auto& [group_tier, part] : parts) {
      part.ts = batch.ts;
      part.data_parallel_rank = batch.data_parallel_rank;
      RelayTopic topic{posted.model, posted.from.worker, posted.rank, TierName(group_tier.first),
                       std::nullopt};
      if (group_tier.second >= 0) topic.group = group_tier.second;
      whole &= SendPart(posted, topic, part);
    }
    parts.clear();
  };
  for (Event& event : batch.events) {
    // A subscriber must get the stores before a clear earlier than the clear.
    const bool clears = std::holds_alternative<AllBlocksCleared>(event);
    if (clears) send_parts();
    EventBatch& part = parts[std::visit(GroupTierOf(), event)];
    part.events.push_back(std::move(event));
    if (clears) send_parts();
  }
  send_parts();
  // The gap in the numbers comes after the messages of this batch. So a subscriber that drops its
  // state at the gap also drops the blocks of this batch, which the lost event may have removed.
  if (LacksEvents(counts)) {
    whole = false;
    numbers_.NoteLost(posted.from);
  }
  ++(whole ? batches_ : dropped_);
}

// ZeroMQ frees the messages of a disconnected subscriber only in the next call on the socket.
// Reading this option has no other effect.
void Relay::Impl::FreeUnsent() {
  int events = 0;
  size_t size = sizeof(events);
  (void)zmq_getsockopt(socket_.get(), ZMQ_EVENTS, &events, &size);
}

// Returns false if the part cannot be encoded, or does not fit into unsent_bytes_max.
bool Relay::Impl::SendPart(const Posted& posted, const RelayTopic& topic, const EventBatch& part) {
  const std::string name = FormatTopic(topic);
  // A part that is not sent also takes a number, so subscribers see the loss.
  const uint64_t number = numbers_.Next(posted.from, name);
  std::vector<uint8_t> payload;
  if (!EncodeBatch(part, Dialect::kKvcast1, payload).ok()) return false;
  if (unsent_bytes_ + payload.size() > config_.unsent_bytes_max) return false;
  const size_t bytes = payload.size();
  // A PUB socket never blocks: it drops messages for a slow subscriber.
  socket_.Send({reinterpret_cast<const uint8_t*>(name.data()), name.size()}, /*more=*/true);
  socket_.Send(stream::EncodeSeq(number), /*more=*/true);
  socket_.SendShared(std::make_shared<const std::vector<uint8_t>>(std::move(payload)), Count(bytes),
                     /*more=*/false);
  ++messages_;
  return true;
}

// Counts the bytes in unsent_bytes_ until ZeroMQ frees the message. ZeroMQ's high-water marks
// cannot limit bytes, because they count messages. All subscriber queues share one message, so its
// bytes count once.
std::shared_ptr<void> Relay::Impl::Count(size_t bytes) {
  unsent_bytes_ += bytes;
  return {this, [this, bytes](void*) { unsent_bytes_ -= bytes; }};
}

Relay::Relay(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Relay::~Relay() = default;

Result<std::unique_ptr<Relay>> Relay::Create(const RelayConfig& config) {
  auto impl = std::make_unique<Impl>(config);
  if (const Status started = impl->Start(); !started.ok()) return started;
  return std::unique_ptr<Relay>(new Relay(std::move(impl)));
}

void Relay::Post(const std::string& model, const std::string& worker, int64_t rank,
                 std::span<const uint8_t> payload) {
  Posted posted{model, {.worker = worker}, rank, {}};
  // The batch of a larger payload stays in the queue without its payload, so subscribers see the
  // loss at the place of the batch.
  if (payload.size() <= impl_->payload_max()) posted.payload.assign(payload.begin(), payload.end());
  impl_->Post(std::move(posted));
}

void Relay::Restart(const std::string& worker) { impl_->Restart(worker); }
void Relay::Forget(const std::string& worker) { impl_->Forget(worker); }

const std::string& Relay::endpoint() const { return impl_->endpoint(); }
RelayCounters Relay::counters() const { return impl_->counters(); }

}  // namespace kvcast::router
