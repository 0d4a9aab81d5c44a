// SPDX-License-Identifier: Apache-2.0
#include "router/service/relay/relay.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <variant>
#include <vector>
#include <zmq.hpp>

#include "kvcast/core/tier.h"
#include "kvcast/wire/wire.h"
#include "router/service/relay/relay_topic.h"
#include "src/base/clock.h"
#include "src/base/mutex.h"

namespace kvcast::router {
namespace {

constexpr int64_t kFreeingPeriodUs = 100000;
constexpr int kLingerMs = 50;  // linger time of the PUB socket

struct Posted {
  std::string model;
  std::string worker;
  int64_t rank = 0;
  uint64_t seq = 0;
  std::vector<uint8_t> payload;
};

struct GroupTierOf {
  std::pair<Tier, int64_t> operator()(const BlockStored& event) const {
    return {TierOf(event.medium), event.group_idx.value_or(-1)};
  }
  std::pair<Tier, int64_t> operator()(const BlockRemoved& event) const {
    return {TierOf(event.medium), event.group_idx.value_or(-1)};
  }
  std::pair<Tier, int64_t> operator()(const AllBlocksCleared& event) const {
    return {TierOf(event.medium), -1};
  }
};

std::array<uint8_t, 8> SeqBytes(uint64_t seq) {
  std::array<uint8_t, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(seq >> (56 - 8 * i));
  return bytes;
}

}  // namespace

void Redact(EventBatch& batch) {
  for (Event& event : batch.events) {
    auto* const stored = std::get_if<BlockStored>(&event);
    if (stored == nullptr) continue;
    stored->token_ids.reset();
    stored->tokens_per_position = 1;
    stored->extra_keys.reset();
    stored->lora_name.reset();
    stored->cache_salt.reset();
    stored->metadata.reset();
    stored->session_id.reset();
    // The number of lookahead tokens stays, because it determines how hits are counted.
    if (stored->lookahead) {
      std::fill(stored->lookahead->token_ids.begin(), stored->lookahead->token_ids.end(), 0);
    }
  }
}

class Relay::Impl {
 public:
  explicit Impl(const RelayConfig& config) : config_(config), context_(1) {}
  ~Impl() { Stop(); }
  Status Start();
  void Post(Posted posted);
  const std::string& endpoint() const { return endpoint_; }
  RelayCounters counters() const { return {batches_, messages_, dropped_, unsent_bytes_}; }

 private:
  void Stop();
  void Run();
  void Send(const Posted& posted);
  bool SendPart(const Posted& posted, const RelayTopic& topic, const EventBatch& part);
  void FreeUnsent();
  zmq::message_t Counted(std::vector<uint8_t> payload);

  const RelayConfig config_;
  std::atomic<size_t> unsent_bytes_{0};  // must outlive context_, whose destructor frees messages
  zmq::context_t context_;
  zmq::socket_t socket_;  // after Start, only thread_ uses the socket
  std::string endpoint_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Posted> queue_ KV_GUARDED_BY(mutex_);
  size_t queued_bytes_ KV_GUARDED_BY(mutex_) = 0;
  bool stopping_ KV_GUARDED_BY(mutex_) = false;
  std::atomic<uint64_t> batches_{0};
  std::atomic<uint64_t> messages_{0};
  std::atomic<uint64_t> dropped_{0};
  std::thread thread_;
};

Status Relay::Impl::Start() {
  try {
    socket_ = zmq::socket_t(context_, zmq::socket_type::pub);
    // Not 0: libzmq 4.3.4 aborts the process if a connection breaks while a message is half sent
    // and the socket is closing without a linger time (libzmq issue 3442).
    socket_.set(zmq::sockopt::linger, kLingerMs);
    socket_.set(zmq::sockopt::sndhwm, config_.send_hwm);
    socket_.set(zmq::sockopt::tcp_maxrt, config_.stall_timeout_ms);
    socket_.bind(config_.endpoint);
    endpoint_ = socket_.get(zmq::sockopt::last_endpoint);
  } catch (const zmq::error_t& error) {
    const bool taken = error.num() == EADDRINUSE || error.num() == EADDRNOTAVAIL;
    return Status(taken ? StatusCode::kUnavailable : StatusCode::kInvalidArgument,
                  "relay: cannot bind " + config_.endpoint + ": " + error.what());
  }
  thread_ = std::thread([this] { Run(); });
  return Status();
}

void Relay::Impl::Stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyOne();
  if (thread_.joinable()) thread_.join();
}

void Relay::Impl::Post(Posted posted) {
  {
    const MutexLock lock(mutex_);
    queued_bytes_ += posted.payload.size();
    queue_.push_back(std::move(posted));
    while (queue_.size() > config_.queue_batches_max || queued_bytes_ > config_.queue_bytes_max) {
      queued_bytes_ -= queue_.front().payload.size();
      queue_.pop_front();
      ++dropped_;
    }
  }
  wake_.NotifyOne();
}

void Relay::Impl::Run() {
  while (true) {
    std::deque<Posted> work;
    {
      const MutexLock lock(mutex_);
      while (queue_.empty() && unsent_bytes_ == 0 && !stopping_) wake_.Wait(mutex_);
      if (queue_.empty() && !stopping_) wake_.WaitUntil(mutex_, SteadyUs() + kFreeingPeriodUs);
      if (stopping_) return;
      work.swap(queue_);
      queued_bytes_ = 0;
    }
    if (unsent_bytes_ > 0) FreeUnsent();
    for (const Posted& posted : work) Send(posted);
  }
}

void Relay::Impl::Send(const Posted& posted) {
  EventBatch batch;
  DecodeCounts counts;
  if (!DecodeBatch(posted.payload, WireLimits(), batch, counts).ok()) {
    ++dropped_;
    return;
  }
  if (config_.redact) Redact(batch);
  std::map<std::pair<Tier, int64_t>, EventBatch> parts;
  for (Event& event : batch.events) {
    EventBatch& part = parts[std::visit(GroupTierOf(), event)];
    part.events.push_back(std::move(event));
  }
  bool whole = true;
  for (auto& [group_tier, part] : parts) {
    part.ts = batch.ts;
    part.data_parallel_rank = batch.data_parallel_rank;
    RelayTopic topic{posted.model, posted.worker, posted.rank, TierName(group_tier.first),
                     std::nullopt};
    if (group_tier.second >= 0) topic.group = group_tier.second;
    whole &= SendPart(posted, topic, part);
  }
  ++(whole ? batches_ : dropped_);
}

// ZeroMQ frees the messages of a disconnected subscriber only in the next call on the socket.
// Reading this option has no other effect.
void Relay::Impl::FreeUnsent() { (void)socket_.get(zmq::sockopt::events); }

// Returns false if the part cannot be encoded, or does not fit into unsent_bytes_max.
bool Relay::Impl::SendPart(const Posted& posted, const RelayTopic& topic, const EventBatch& part) {
  std::vector<uint8_t> payload;
  if (!EncodeBatch(part, Dialect::kKvcast1, payload).ok()) return false;
  if (unsent_bytes_ + payload.size() > config_.unsent_bytes_max) return false;
  const std::string name = FormatTopic(topic);
  const auto seq = SeqBytes(posted.seq);
  // A PUB socket never blocks: it drops messages for a slow subscriber.
  socket_.send(zmq::buffer(name), zmq::send_flags::sndmore);
  socket_.send(zmq::buffer(seq), zmq::send_flags::sndmore);
  socket_.send(Counted(std::move(payload)), zmq::send_flags::none);
  ++messages_;
  return true;
}

// Counts the payload in unsent_bytes_ until ZeroMQ frees the message. ZeroMQ's high-water marks
// cannot limit bytes, because they count messages. All subscriber queues share one message, so its
// bytes count once.
zmq::message_t Relay::Impl::Counted(std::vector<uint8_t> payload) {
  struct Held {
    std::vector<uint8_t> payload;
    std::atomic<size_t>& unsent_bytes;
  };
  auto held = std::make_unique<Held>(Held{std::move(payload), unsent_bytes_});
  unsent_bytes_ += held->payload.size();
  const auto release = [](void*, void* hint) {
    const std::unique_ptr<Held> owner(static_cast<Held*>(hint));
    owner->unsent_bytes -= owner->payload.size();
  };
  Held* const raw = held.release();
  return {raw->payload.data(), raw->payload.size(), release, raw};
}

Relay::Relay(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Relay::~Relay() = default;

Result<std::unique_ptr<Relay>> Relay::Create(const RelayConfig& config) {
  auto impl = std::make_unique<Impl>(config);
  if (const Status started = impl->Start(); !started.ok()) return started;
  return std::unique_ptr<Relay>(new Relay(std::move(impl)));
}

void Relay::Post(const std::string& model, const std::string& worker, int64_t rank, Seq seq,
                 std::span<const uint8_t> payload) {
  impl_->Post({model, worker, rank, seq.value, {payload.begin(), payload.end()}});
}

const std::string& Relay::endpoint() const { return impl_->endpoint(); }
RelayCounters Relay::counters() const { return impl_->counters(); }

}  // namespace kvcast::router
