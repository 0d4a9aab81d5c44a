// The relay publishes batches again, split by tier and group. Each topic has its own sequence
// numbers, which show each loss. A subscriber that does not read costs bounded memory, and the
// relay disconnects this subscriber.
// SPDX-License-Identifier: Apache-2.0
#include "router/service/relay/relay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>
#include <zmq.hpp>

#include "kvcast/wire/wire.h"
#include "router/service/relay/relay_queue.h"
#include "router/service/relay/relay_topic.h"
#include "router/service/relay/topic_numbers.h"
#include "src/base/sanitizers.h"
#include "src/wire/writer.h"
#include "tests/support/colliding_texts.h"
#include "tests/support/frame_limit.h"
#include "tests/support/index_events.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using kvcast::stream::Eventually;
using kvcast::testing::Batch;
using kvcast::testing::Hashes;
using kvcast::testing::Remove;
using kvcast::testing::StoreFull;
using kvcast::testing::StoreIn;
using kvcast::testing::ThreadNsOf;

std::vector<uint8_t> Encoded(const EventBatch& batch) {
  std::vector<uint8_t> payload;
  EXPECT_TRUE(EncodeBatch(batch, Dialect::kKvcast1, payload).ok());
  return payload;
}

// A remove of one block without a group, and the event [tag, "x"].
std::vector<uint8_t> RemoveAnd(std::string_view tag) {
  std::vector<uint8_t> payload;
  wire::Writer out(payload);
  out.ArrayHead(2);
  out.Float(0);
  out.ArrayHead(2);
  out.ArrayHead(2);
  out.Text("BlockRemoved");
  out.ArrayHead(1);
  out.Unsigned(1);
  out.ArrayHead(2);
  out.Text(tag);
  out.Text("x");
  out.Close();
  return payload;
}

Posted PostedBy(const std::string& worker, size_t bytes, uint64_t run = 1) {
  return {"m", {worker, run}, 0, std::vector<uint8_t>(bytes)};
}

// A subscriber with the smallest possible buffers.
class Reader {
 public:
  Reader(zmq::context_t& context, const std::string& endpoint, const std::string& topic = "")
      : socket_(context, zmq::socket_type::sub) {
    socket_.set(zmq::sockopt::rcvhwm, 1);
    socket_.set(zmq::sockopt::rcvbuf, 4096);
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::rcvtimeo, 60000);
    socket_.set(zmq::sockopt::subscribe, topic);
    socket_.connect(endpoint);
  }
  bool HasMessage() { return (socket_.get(zmq::sockopt::events) & ZMQ_POLLIN) != 0; }
  struct Message {
    std::string topic;
    uint64_t seq = 0;
    EventBatch batch;
  };
  Message Read() {
    zmq::message_t topic;
    zmq::message_t seq;
    zmq::message_t payload;
    Message message;
    if (!socket_.recv(topic) || !socket_.recv(seq) || !socket_.recv(payload)) return message;
    message.topic = topic.to_string();
    for (size_t i = 0; i < seq.size(); ++i) {
      message.seq = message.seq << 8 | static_cast<const uint8_t*>(seq.data())[i];
    }
    DecodeCounts counts;
    const std::span bytes(static_cast<const uint8_t*>(payload.data()), payload.size());
    EXPECT_TRUE(DecodeBatch(bytes, WireLimits(), message.batch, counts).ok());
    return message;
  }

 private:
  zmq::socket_t socket_;
};

struct RelayTest : ::testing::Test {
  void Start(RelayConfig config = {}) {
    config.endpoint = "tcp://127.0.0.1:0";
    relay = Relay::Create(config).value();
  }
  void Post(const EventBatch& batch, const std::string& worker = "w.1") {
    relay->Post("m", worker, 2, Encoded(batch));
  }
  // Returns the number of posted batches that the relay has sent or dropped.
  uint64_t Handled() const { return relay->counters().batches + relay->counters().dropped; }
  // Waits until the reader receives batches. The reader misses batches that are sent before its
  // subscription, so this function sends a batch again and again.
  void Await(Reader& reader) {
    const uint64_t before = Handled();
    uint64_t posted = 0;
    ASSERT_TRUE(Eventually([&] {
      Post(Batch(StoreFull(Hashes(1, 1), 63)), "first");
      ++posted;
      return reader.HasMessage();
    }));
    EXPECT_FALSE(reader.Read().topic.empty());
    ASSERT_TRUE(Eventually([&] { return Handled() == before + posted; }));
  }
  // Posts batches until the relay drops a batch, because the unsent bytes have reached the bound.
  // Returns false if the relay disconnects the subscriber first.
  bool Fill(size_t unsent_bytes_max) {
    constexpr uint64_t kMany = 2000;  // more than the system's buffers hold
    const EventBatch large = Batch(StoreFull(Hashes(uint64_t{1} << 60, 10000), 0));
    const uint64_t before = Handled();
    for (uint64_t i = 0; i < kMany; ++i) {
      Post(large);
      EXPECT_TRUE(Eventually([&] { return Handled() == before + i + 1; }));
      const uint64_t unsent = relay->counters().unsent_bytes;
      EXPECT_LE(unsent, unsent_bytes_max);
      most_unsent = std::max(most_unsent, unsent);
      if (HasFailure()) return false;
      if (relay->counters().dropped > 0) return true;
    }
    return false;
  }

  // Returns the next message that Await has not sent.
  static Reader::Message Next(Reader& reader) {
    for (;;) {
      Reader::Message message = reader.Read();
      EXPECT_FALSE(message.topic.empty());
      if (message.topic.find(".first.") == std::string::npos) return message;
    }
  }
  // Tiers, groups and numbers of messages.
  using Numbers = std::vector<std::pair<std::string, uint64_t>>;
  static Numbers NextNumbers(Reader& reader, size_t count) {
    Numbers numbers;
    for (size_t i = 0; i < count; ++i) {
      const Reader::Message message = Next(reader);
      numbers.emplace_back(message.topic.substr(message.topic.find(".2.") + 3), message.seq);
    }
    return numbers;
  }

  zmq::context_t context;
  std::unique_ptr<Relay> relay;
  uint64_t most_unsent = 0;  // the largest number of unsent bytes that Fill saw
};

TEST_F(RelayTest, ABatchIsSplitByTierAndGroup) {
  Start();
  Reader reader(context, relay->endpoint());
  Await(reader);
  AllBlocksCleared cleared;
  Post(Batch(StoreFull(Hashes(1, 3), 0), StoreFull(Hashes(1, 2), 1), Remove(Hashes(9, 1), 0),
             StoreIn("CPU", Hashes(4, 1)), cleared));
  std::map<std::string, size_t> events;
  while (events.size() < 4) {
    const Reader::Message message = Next(reader);
    EXPECT_EQ(message.seq, 0u);
    events[message.topic] = message.batch.events.size();
  }
  EXPECT_EQ(events, (std::map<std::string, size_t>{{"kv.m.w%2E1.2.GPU.0", 2},
                                                   {"kv.m.w%2E1.2.GPU.1", 1},
                                                   {"kv.m.w%2E1.2.GPU.-", 1},
                                                   {"kv.m.w%2E1.2.CPU.0", 1}}));
}

// A subscriber that clears a tier must not keep a block that was stored before the clear.
TEST_F(RelayTest, AClearComesAfterTheEventsBeforeIt) {
  Start();
  Reader reader(context, relay->endpoint());
  Await(reader);
  Post(Batch(StoreFull(Hashes(1, 1), 0), AllBlocksCleared(), StoreFull(Hashes(2, 1), 0)));
  EXPECT_EQ(NextNumbers(reader, 3), (Numbers{{"GPU.0", 0}, {"GPU.-", 0}, {"GPU.0", 1}}));
}

TEST_F(RelayTest, EachTopicCountsItsOwnMessages) {
  Start();
  Reader reader(context, relay->endpoint());
  Await(reader);
  Post(Batch(StoreFull(Hashes(1, 1), 0)));
  Post(Batch(StoreFull(Hashes(2, 1), 1)));
  Post(Batch(StoreFull(Hashes(3, 1), 0), StoreFull(Hashes(3, 1), 1)));
  EXPECT_EQ(NextNumbers(reader, 4),
            (Numbers{{"GPU.0", 0}, {"GPU.1", 0}, {"GPU.0", 1}, {"GPU.1", 1}}));
}

TEST_F(RelayTest, ABatchThatCannotBeReadIsAGapInEachTopic) {
  Start();
  Reader reader(context, relay->endpoint());
  Await(reader);
  const EventBatch both = Batch(StoreFull(Hashes(1, 1), 0), StoreFull(Hashes(1, 1), 1));
  Post(both);
  relay->Post("m", "w.1", 2, std::vector<uint8_t>{0xc1});
  relay->Post("m", "w.1", 2, std::vector<uint8_t>{0xc1});
  Post(both);
  Post(Batch(StoreFull(Hashes(2, 1), 2)));
  Post(both);
  EXPECT_EQ(NextNumbers(reader, 7), (Numbers{{"GPU.0", 0},
                                             {"GPU.1", 0},
                                             {"GPU.0", 2},
                                             {"GPU.1", 2},
                                             {"GPU.2", 1},
                                             {"GPU.0", 3},
                                             {"GPU.1", 3}}));
}

// The other events of the batch are sent. An event of an unknown type is not a gap, because it
// changes no blocks.
TEST_F(RelayTest, AnEventThatCannotBeReadIsAGapInEachTopic) {
  Start();
  Reader reader(context, relay->endpoint());
  Await(reader);
  const EventBatch both = Batch(StoreFull(Hashes(1, 1), 0), StoreFull(Hashes(1, 1), 1));
  Post(both);
  relay->Post("m", "w.1", 2, RemoveAnd("BlockRemoved"));
  Post(both);
  relay->Post("m", "w.1", 2, RemoveAnd("Unknown"));
  Post(both);
  EXPECT_EQ(NextNumbers(reader, 8), (Numbers{{"GPU.0", 0},
                                             {"GPU.1", 0},
                                             {"GPU.-", 0},
                                             {"GPU.0", 2},
                                             {"GPU.1", 2},
                                             {"GPU.-", 2},
                                             {"GPU.0", 3},
                                             {"GPU.1", 3}}));
  EXPECT_EQ(relay->counters().dropped, 1u);
}

TEST_F(RelayTest, AResetOrRemovedWorkerBeginsAtZero) {
  Start();
  Reader reader(context, relay->endpoint());
  Await(reader);
  const EventBatch batch = Batch(StoreFull(Hashes(1, 1), 0));
  Post(batch);
  Post(batch);
  relay->Restart("w.1");
  Post(batch);
  Post(batch);
  relay->Forget("w.1");
  Post(batch);
  relay->Forget("unknown");
  Post(batch);
  EXPECT_EQ(
      NextNumbers(reader, 6),
      (Numbers{
          {"GPU.0", 0}, {"GPU.0", 1}, {"GPU.0", 0}, {"GPU.0", 1}, {"GPU.0", 0}, {"GPU.0", 1}}));
}

// Events of all groups out of range have one topic, so a worker has a bounded number of topics.
TEST_F(RelayTest, AGroupOutOfRangeIsNoGroup) {
  Start();
  Reader reader(context, relay->endpoint());
  Await(reader);
  Post(Batch(StoreFull(Hashes(1, 1), 64), StoreFull(Hashes(2, 1), int64_t{1} << 60),
             StoreFull(Hashes(3, 1), -5)));
  Post(Batch(StoreFull(Hashes(4, 1), 63)));
  EXPECT_EQ(NextNumbers(reader, 2), (Numbers{{"GPU.-", 0}, {"GPU.63", 0}}));
}

TEST(TopicNumbers, ForgetsAWorkerWhoseLatestRunSentNothing) {
  TopicNumbers numbers;
  EXPECT_EQ(numbers.Next({"w", 1}, "t"), 0u);
  EXPECT_EQ(numbers.workers(), 1u);
  numbers.Forget({"w", 2});
  EXPECT_EQ(numbers.workers(), 0u);
}

TEST_F(RelayTest, AFrameAboveTheLimitEndsTheConnection) {
  Start();
  EXPECT_FALSE(kvcast::testing::EndsConnectionOfFrame(relay->endpoint(), "SUB", 4 << 10));
  EXPECT_TRUE(kvcast::testing::EndsConnectionOfFrame(relay->endpoint(), "SUB", (4 << 10) + 1));
}

TEST_F(RelayTest, AnAddressInUseIsAnError) {
  Start();
  RelayConfig same;
  same.endpoint = relay->endpoint();
  EXPECT_EQ(Relay::Create(same).status().code(), StatusCode::kUnavailable);
  same.endpoint = "nonsense";
  EXPECT_EQ(Relay::Create(same).status().code(), StatusCode::kInvalidArgument);
}

// One subscriber does not read. Its queue is bounded in bytes, and posting continues. After its
// disconnection the queue is empty again, and a new subscriber gets batches.
TEST_F(RelayTest, ASubscriberThatDoesNotReadCostsBoundedMemory) {
#ifdef KVCAST_THREAD_SANITIZER
  GTEST_SKIP() << "decoding megabytes takes minutes under ThreadSanitizer";
#endif
  RelayConfig config;
  config.unsent_bytes_max = 8 << 20;
  // The subscriber must stall until the bound is reached. A slow machine needs more time.
  std::unique_ptr<Reader> stalled;
  bool full = false;
  for (config.stall_timeout_ms = 3000; !full; config.stall_timeout_ms *= 2) {
    ASSERT_LT(config.stall_timeout_ms, 60000) << "the bound was not reached";
    Start(config);
    stalled = std::make_unique<Reader>(context, relay->endpoint());
    Await(*stalled);
    full = Fill(config.unsent_bytes_max);
    if (HasFailure()) return;
  }
  EXPECT_GT(most_unsent, config.unsent_bytes_max / 2);
  ASSERT_TRUE(Eventually([&] { return relay->counters().unsent_bytes == 0; }));
  Reader reader(context, relay->endpoint(), "kv.m.first.2.GPU.63");
  Await(reader);
}

// The batches that wait for the relay's thread are bounded in number.
TEST_F(RelayTest, TheQueueIsBounded) {
  RelayConfig config;
  config.queue_batches_max = 1;
  Start(config);
  for (uint64_t i = 0; i < 2000; ++i) Post(Batch(StoreFull(Hashes(1, 100), 0)));
  ASSERT_TRUE(Eventually([&] { return Handled() == 2000; }));
  EXPECT_GT(relay->counters().dropped, 0u);
  EXPECT_GT(relay->counters().batches, 0u);
}

// Earlier batches of the worker stay.
TEST_F(RelayTest, ABatchLargerThanHalfOfTheQueueIsAGapAtItsPlace) {
  RelayConfig config;
  config.queue_bytes_max = 1'000'000;
  Start(config);
  Reader reader(context, relay->endpoint());
  Await(reader);
  const EventBatch large = Batch(StoreFull(Hashes(uint64_t{1} << 60, 60000), 0));
  ASSERT_GT(Encoded(large).size(), config.queue_bytes_max / 2);
  Post(Batch(StoreFull(Hashes(1, 1), 0)));
  Post(large);
  Post(Batch(StoreFull(Hashes(2, 1), 0)));
  EXPECT_EQ(NextNumbers(reader, 2), (Numbers{{"GPU.0", 0}, {"GPU.0", 2}}));
  EXPECT_EQ(relay->counters().dropped, 1u);
}

TEST(RelayQueue, OnlyTheWorkerWithTheMostBytesLosesBatches) {
  RelayQueue queue(1000, 1000);
  size_t lost = queue.Push(PostedBy("a", 100));
  for (size_t i = 0; i < 50; ++i) {
    lost += queue.Push(PostedBy("greedy", 400 + i));
    lost += queue.Push(PostedBy("small", 5));
  }
  EXPECT_EQ(lost, 49u);
  EXPECT_EQ(queue.workers().at("a").batches.size(), 1u);
  EXPECT_EQ(queue.workers().at("small").batches.size(), 50u);
  const RelayQueue::Worker& greedy = queue.workers().at("greedy");
  ASSERT_EQ(greedy.batches.size(), 1u);
  EXPECT_EQ(greedy.batches.front().payload.size(), 449u) << "the newest batch stays";
  EXPECT_EQ(greedy.bytes, 449u);
}

// A worker with many small batches does not push out the large batch of another worker.
TEST(RelayQueue, AWorkerWithManyBatchesLosesItsOwnBatches) {
  RelayQueue queue(10, 1000);
  EXPECT_EQ(queue.Push(PostedBy("a", 400)), 0u);
  size_t lost = 0;
  for (int i = 0; i < 30; ++i) lost += queue.Push(PostedBy("greedy", 1));
  EXPECT_EQ(lost, 24u);
  EXPECT_EQ(queue.workers().at("greedy").batches.size(), 6u);
  EXPECT_EQ(queue.workers().at("a").batches.size(), 1u);
}

TEST(RelayQueue, ALossHasTheRunOfTheLatestLostBatch) {
  RelayQueue queue(2, 100);
  for (uint64_t run = 1; run <= 4; ++run) queue.Push(PostedBy("a", 1, run));
  const RelayQueue::Worker& worker = queue.workers().at("a");
  EXPECT_EQ(worker.lost_run, 2u);
  ASSERT_EQ(worker.batches.size(), 2u);
  EXPECT_EQ(worker.batches.front().from.run, 3u);
  queue.Push(PostedBy("b", 1));
  EXPECT_EQ(queue.workers().at("b").lost_run, std::nullopt);
}

// A search through all workers would make each loss 1,000 times slower.
TEST(RelayQueue, ManyWorkersDoNotMakeAPushSlow) {
  const auto cost = [](size_t workers) {
    RelayQueue queue(workers, 1000 * workers);
    for (size_t i = 0; i < workers; ++i) queue.Push(PostedBy(std::to_string(i), 1));
    return ThreadNsOf([&] {
      for (size_t i = 0; i < 2000; ++i) {
        EXPECT_EQ(queue.Push(PostedBy(std::to_string(i % workers), 1)), 1u);
      }
    });
  };
  const int64_t few = cost(40);
  EXPECT_LT(cost(40000), 50 * few);
}

// libzmq keeps each subscription, so the relay ends the connection of such a peer.
TEST_F(RelayTest, ASubscriberWithTooManySubscriptionsIsDisconnected) {
  Start();
  Reader good(context, relay->endpoint());
  Await(good);
  zmq::socket_t hostile(context, zmq::socket_type::sub);
  hostile.set(zmq::sockopt::linger, 0);
  hostile.connect(relay->endpoint());
  const std::string topic(1000, 't');
  for (int i = 0; i < 1000; ++i) {
    hostile.set(zmq::sockopt::subscribe, topic + std::to_string(i));
  }
  EXPECT_TRUE(Eventually([&] { return relay->counters().flooding_peers >= 1; }));
  Await(good);
}

}  // namespace
}  // namespace kvcast::router
