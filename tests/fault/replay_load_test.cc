// Runs 64 replay clients while a producer publishes (row L6 of tests/RELIABILITY.md).
// SPDX-License-Identifier: Apache-2.0
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "src/stream/net/socket.h"
#include "tests/fault/fault_test.h"

namespace kvcast::stream {
namespace {

using std::chrono::milliseconds;

constexpr size_t kGreedy = 63;  // one more client requests few batches
constexpr uint64_t kBatches = 2000;
constexpr size_t kBatchBytes = 4 << 10;
constexpr double kRate = 1 << 20;  // bytes per second and client
constexpr double kLoadS = 4;

class Client {
 public:
  Client(const std::shared_ptr<Context>& context, const std::string& endpoint)
      : socket_(Socket::Create(context, ZMQ_DEALER).value()) {
    socket_.SetOption(ZMQ_LINGER, 0);
    socket_.SetOption(ZMQ_RCVHWM, 10);  // small, so that nearly all sent bytes have been read
    EXPECT_TRUE(socket_.Connect(endpoint).ok());
  }
  void Ask(uint64_t start) {
    socket_.Send({}, /*more=*/true);
    socket_.Send(EncodeSeq(start), /*more=*/false);
  }
  // Reads the waiting messages. Returns true if END was received.
  bool Read() {
    while (socket_.Receive(message_) != RecvResult::kNone) {
      const Reply reply = ParseReply(message_.frames());
      if (reply.kind == ReplyKind::kEnd) return true;
      bytes_ += reply.batch.payload.size();
    }
    return false;
  }
  zmq_pollitem_t poll_item() const { return {socket_.get(), 0, ZMQ_POLLIN, 0}; }
  uint64_t bytes() const { return bytes_; }

 private:
  Socket socket_;
  Multipart message_;
  uint64_t bytes_ = 0;
};

// The clients represent clients on other machines. If the machine has at least two cores, one core
// is reserved for the clients.
class OwnCore {
 public:
  OwnCore() {
    CPU_ZERO(&all_);
    if (sched_getaffinity(0, sizeof(all_), &all_) != 0) return;
    last_ = CPU_SETSIZE - 1;
    while (last_ > 0 && !CPU_ISSET(last_, &all_)) --last_;
  }
  // Applies to the calling thread, and to the threads that it starts later.
  void GiveToThisThread() const {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(last_, &cores);
    if (CPU_COUNT(&all_) > 1) sched_setaffinity(0, sizeof(cores), &cores);
  }
  void TakeFromThisThread() const {
    cpu_set_t cores = all_;
    CPU_CLR(last_, &cores);
    if (CPU_COUNT(&all_) > 1) sched_setaffinity(0, sizeof(cores), &cores);
  }

 private:
  cpu_set_t all_;
  int last_ = 0;
};

double Percentile(std::vector<double>& figures, double part) {
  std::ranges::sort(figures);
  return figures[static_cast<size_t>(part * static_cast<double>(figures.size() - 1))];
}

// Returns the time until each answer, in ms.
std::vector<double> AskForLittle(Client& client, const Publisher& publisher,
                                 const std::atomic<bool>& stop) {
  std::vector<double> waits_ms;
  while (!stop) {
    const Stopwatch since;
    client.Ask(publisher.next_seq().value - 2);
    zmq_pollitem_t item = client.poll_item();
    bool answered = false;
    for (; !answered && since.seconds() < 10; answered = client.Read()) zmq_poll(&item, 1, 100);
    EXPECT_TRUE(answered);
    waits_ms.push_back(since.seconds() * 1e3);
    std::this_thread::sleep_for(milliseconds(20));
  }
  return waits_ms;
}

// Each client requests all batches repeatedly.
void AskForAll(std::vector<std::unique_ptr<Client>>& clients, const std::atomic<bool>& stop) {
  std::vector<zmq_pollitem_t> items;
  for (const auto& client : clients) {
    client->Ask(0);
    items.push_back(client->poll_item());
  }
  while (!stop) {
    zmq_poll(items.data(), static_cast<int>(items.size()), 10);
    for (const auto& client : clients) {
      if (client->Read()) client->Ask(0);
    }
  }
}

// Returns the time of each call, in us.
std::vector<double> Publish(Publisher& publisher, double seconds) {
  std::vector<double> calls_us;
  for (const Stopwatch since; since.seconds() < seconds;) {
    const Bytes payload = TestPayload(publisher.next_seq().value, 0, kBatchBytes);
    const Stopwatch call;
    EXPECT_TRUE(publisher.PublishPayload(payload).ok());
    calls_us.push_back(call.seconds() * 1e6);
    std::this_thread::sleep_for(milliseconds(1));
  }
  return calls_us;
}

TEST(ReplayLoad, TheRateLimitsGreedyClientsAndEveryClientIsServed) {
  const OwnCore clients_core;
  clients_core.TakeFromThisThread();
  PublisherConfig config = TestPublisherConfig();
  config.replay_bytes_per_s = kRate;
  const auto publisher = MakePublisher(config);
  PublishUpTo(*publisher, kBatches, 0, kBatchBytes);
  const auto context = Context::Create();
  std::vector<std::unique_ptr<Client>> greedy;
  std::unique_ptr<Client> modest;
  // The first socket starts the I/O threads, which then run on the core of the clients.
  std::thread([&] {
    clients_core.GiveToThisThread();
    for (size_t i = 0; i < kGreedy; ++i) {
      greedy.push_back(std::make_unique<Client>(context, publisher->replay_endpoint()));
    }
    modest = std::make_unique<Client>(context, publisher->replay_endpoint());
  }).join();
  std::atomic<bool> stop = false;
  std::vector<double> waits_ms;
  std::vector<double> quiet_us = Publish(*publisher, 1);
  const Stopwatch since;
  std::thread greedy_ones([&] {
    clients_core.GiveToThisThread();
    AskForAll(greedy, stop);
  });
  std::thread modest_one([&] {
    clients_core.GiveToThisThread();
    waits_ms = AskForLittle(*modest, *publisher, stop);
  });
  std::vector<double> calls_us = Publish(*publisher, kLoadS);
  stop = true;
  greedy_ones.join();
  modest_one.join();

  // A client gets at most kRate bytes at once, then kRate bytes per second, and one more batch.
  const double allowed = kRate * (1 + since.seconds()) + kBatchBytes;
  uint64_t least = UINT64_MAX;
  uint64_t most = 0;
  for (const auto& client : greedy) {
    least = std::min(least, client->bytes());
    most = std::max(most, client->bytes());
  }
  EXPECT_LE(static_cast<double>(most), allowed);
  EXPECT_GT(least, most / 4);
  const PublisherCounters counters = publisher->counters();
  EXPECT_GT(counters.replay_delays, 0u);
  EXPECT_EQ(counters.replay_dropped, 0u);
  Figure("L6", "publish() p99 before the load", Percentile(quiet_us, 0.99), 50, "us");
  Figure("L6", "publish() p50", Percentile(calls_us, 0.5), 50, "us");
  Figure("L6", "publish() p99", Percentile(calls_us, 0.99), 50, "us");
  Figure("L6", "greedy client, least of 63", static_cast<double>(least) / since.seconds(), kRate,
         "B/s");
  Figure("L6", "greedy client, most of 63", static_cast<double>(most) / since.seconds(), kRate,
         "B/s");
  Figure("L6", "modest client, p50", Percentile(waits_ms, 0.5), 5, "ms");
  Figure("L6", "modest client, p99", Percentile(waits_ms, 0.99), 50, "ms");
}

}  // namespace
}  // namespace kvcast::stream
