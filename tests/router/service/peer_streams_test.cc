// A router follows publishers with the formats of TensorRT-LLM and Mooncake over sockets. It counts
// the events that it leaves out, and relays the other events.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <httplib.h>

#include <chrono>
#include <functional>
#include <thread>
#include <zmq.hpp>

#include "kvcast/core/tier.h"
#include "kvcast/stream/publisher.h"
#include "router/service/ingest/mooncake_writer.h"
#include "router/service/ingest/trtllm_writer.h"
#include "router/service/json/json_fields.h"
#include "router/service/router_service.h"
#include "tests/router/service/peer_engine.h"
#include "tests/support/content_events.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::router {
namespace {

using testing::Batch;
using testing::Hash;
using testing::kPeerBlock;
using testing::PeerEngine;
using testing::PeerFull;
using testing::Remove;
using testing::StoreTokens;
using testing::Tokens;
using Bytes = std::vector<uint8_t>;
using Encoder = std::function<Bytes(const EventBatch&)>;

struct PeerStreamsTest : ::testing::Test {
  PeerStreamsTest() {
    PublisherConfig config;
    config.endpoint = "tcp://127.0.0.1:0";
    config.replay_endpoint = "tcp://127.0.0.1:0";
    config.heartbeat_ms = 0;
    config.extension = false;
    publisher = Publisher::Create(config).value();
  }
  void Start(WorkerRegistration source) {
    source.worker.name = "peer";
    source.model = "model";
    source.endpoint = publisher->endpoint();
    source.replay_endpoint = publisher->replay_endpoint();
    RouterOptions options;
    options.sources = {source};
    options.relay.endpoint = "tcp://127.0.0.1:0";
    auto started = RouterService::Start(options);
    ASSERT_TRUE(started.ok()) << started.status().ToString();
    service = std::move(started).value();
    relayed = zmq::socket_t(context, zmq::socket_type::sub);
    relayed.set(zmq::sockopt::subscribe, "");
    relayed.set(zmq::sockopt::rcvtimeo, 60000);
    relayed.set(zmq::sockopt::linger, 0);
    relayed.connect(service->relay_endpoint());
  }
  void Publish(const Bytes& payload) { ASSERT_TRUE(publisher->PublishPayload(payload).ok()); }
  httplib::Client Client() const {
    httplib::Client client("127.0.0.1", service->http_port());
    client.set_read_timeout(60);
    return client;
  }
  Json AskWhenApplied(const std::vector<TokenId>& prompt) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    const std::string body = Json{{"tokens", prompt}}.dump();
    const uint64_t next = publisher->next_seq().value;
    Json worker;
    do {
      const auto reply = Client().Post("/v1/query", body, "application/json");
      if (reply && reply->status == 200) worker = Json::parse(reply->body)["workers"][0];
    } while ((worker.is_null() || worker["next_seq"] != next) &&
             std::chrono::steady_clock::now() < deadline);
    EXPECT_EQ(worker["next_seq"], next) << worker.dump();
    return worker;
  }
  double Metric(const std::string& sample) const {
    const std::string page = "\n" + Client().Get("/metrics")->body;
    const size_t at = page.find("\n" + sample + " ");
    return at == std::string::npos ? -1 : std::stod(page.substr(at + sample.size() + 2));
  }
  double LeftOut(const std::string& format, const std::string& reason) const {
    return Metric("kvcast_format_left_out_total{worker=\"peer\",format=\"" + format +
                  "\",reason=\"" + reason + "\"}");
  }
  // Returns the next batch of the relay.
  EventBatch Relayed() {
    zmq::message_t frames[3];
    EventBatch batch;
    for (zmq::message_t& frame : frames) {
      EXPECT_TRUE(relayed.recv(frame)) << "nothing was relayed";
    }
    DecodeCounts counts;
    const std::span payload(static_cast<const uint8_t*>(frames[2].data()), frames[2].size());
    EXPECT_TRUE(DecodeBatch(payload, WireLimits(), batch, counts).ok());
    return batch;
  }
  // Waits until the subscriber of the relay receives batches. The subscriber receives nothing
  // before its subscription has arrived, so this function publishes a batch again and again. Then
  // it publishes another batch, and drops all received batches up to this batch.
  void AwaitRelay(const Encoder& encode) {
    ASSERT_TRUE(stream::Eventually([&] {
      Publish(encode(Batch(StoreTokens({Hash(900)}, Tokens(900, 4)), Remove({Hash(900)}))));
      return (relayed.get(zmq::sockopt::events) & ZMQ_POLLIN) != 0;
    })) << "nothing is relayed";
    Publish(encode(Batch(StoreTokens({Hash(950)}, Tokens(950, 4)))));
    const auto is_last = [](const EventBatch& batch) {
      const auto* stored = std::get_if<BlockStored>(&batch.events.at(0));
      return stored != nullptr && stored->token_ids == Tokens(950, 4);
    };
    while (!is_last(Relayed())) ASSERT_FALSE(HasFailure());
  }
  void ExpectRelayed(const Encoder& encode) {
    AwaitRelay(encode);
    Publish(encode(Batch(StoreTokens({Hash(1), Hash(2)}, Tokens(1, 8)))));
    EventBatch batch = Relayed();
    std::vector<TokenId> tokens;
    for (const Event& event : batch.events) {
      const auto& part = std::get<BlockStored>(event);
      tokens.insert(tokens.end(), part.token_ids->begin(), part.token_ids->end());
    }
    EXPECT_EQ(tokens, Tokens(1, 8));
    Publish(encode(Batch(Remove({Hash(2)}))));
    batch = Relayed();
    ASSERT_EQ(batch.events.size(), 1u);
    EXPECT_EQ(std::get<BlockRemoved>(batch.events[0]).block_hashes,
              std::vector<BlockHash>{Hash(2)});
  }
  void ExpectExact(const Encoder& encode) {
    PeerEngine engine({PeerFull()}, 64, 11);
    int64_t hits = 0;
    for (int turn = 0; turn < 60; ++turn) {
      EventBatch batch;
      batch.ts = 1'790'000'000 + turn;
      batch.events = engine.Run(engine.NextPrompt());
      Publish(encode(batch));
      const auto asked = engine.NextPrompt();
      const int64_t hit = engine.Lookup(asked);
      hits += hit > 0 ? 1 : 0;
      const Json worker = AskWhenApplied(asked);
      ASSERT_EQ(worker["reusable_tokens"], hit) << turn << worker.dump();
      ASSERT_EQ(worker["state"], "synced") << worker.dump();
    }
    EXPECT_GT(hits, 10);
  }

  zmq::context_t context;
  std::unique_ptr<Publisher> publisher;
  std::unique_ptr<RouterService> service;
  zmq::socket_t relayed;
};

WorkerRegistration TrtllmPeer() {
  WorkerRegistration source;
  source.format = EventFormat::kTrtllm;
  source.trtllm.window_sizes = {4096};
  source.trtllm.tokens_per_block = kPeerBlock;
  return source;
}
Encoder TrtllmEncoder() {
  auto writer = std::make_shared<TrtllmWriter>(
      TrtllmWriterConfig{.window_sizes = {4096}, .tokens_per_block = kPeerBlock});
  return [writer](const EventBatch& batch) {
    std::string json;
    EXPECT_TRUE(writer->Write(batch, json).ok());
    return Bytes(json.begin(), json.end());
  };
}
WorkerRegistration MooncakePeer() {
  WorkerRegistration source;
  source.format = EventFormat::kMooncake;
  source.worker.groups = {PeerFull()};
  return source;
}
Encoder MooncakeEncoder(const std::string& tenant = "default") {
  auto writer = std::make_shared<MooncakeWriter>(MooncakeWriterConfig{.tenant_id = tenant});
  return [writer](const EventBatch& batch) {
    Bytes bytes;
    EXPECT_TRUE(writer->Write(batch, bytes).ok());
    return bytes;
  };
}

TEST_F(PeerStreamsTest, TrtllmIsFollowedExactly) {
  Start(TrtllmPeer());
  ExpectExact(TrtllmEncoder());
}

TEST_F(PeerStreamsTest, MooncakeIsFollowedExactly) {
  Start(MooncakePeer());
  ExpectExact(MooncakeEncoder());
}

TEST_F(PeerStreamsTest, TrtllmIsRelayedAsEventsOfThisLibrary) {
  Start(TrtllmPeer());
  ExpectRelayed(TrtllmEncoder());
}

TEST_F(PeerStreamsTest, MooncakeIsRelayedAsEventsOfThisLibrary) {
  Start(MooncakePeer());
  ExpectRelayed(MooncakeEncoder());
}

TEST_F(PeerStreamsTest, EventsThatMooncakeLeavesOutAreOnTheMetricsPage) {
  Start(MooncakePeer());
  Publish(MooncakeEncoder("another")(Batch(StoreTokens({Hash(1)}, Tokens(1, 4)))));
  // [1, [{"event_type": "stored", "tenant_id": "default"}, {"event_type": "sneezed", "tenant_id":
  // "default"}, {"event_type": 1}], nil]
  const std::string maps = std::string("\x93\x01\x93\x82") +
                           "\xaa"
                           "event_type"
                           "\xa6"
                           "stored"
                           "\xa9"
                           "tenant_id"
                           "\xa7"
                           "default"
                           "\x82"
                           "\xaa"
                           "event_type"
                           "\xa7"
                           "sneezed"
                           "\xa9"
                           "tenant_id"
                           "\xa7"
                           "default"
                           "\x81"
                           "\xaa"
                           "event_type"
                           "\x01"
                           "\xc0";
  Publish(Bytes(maps.begin(), maps.end()));
  (void)AskWhenApplied({1, 2});
  EXPECT_EQ(LeftOut("mooncake", "other_tenant_or_backend"), 1);
  EXPECT_EQ(LeftOut("mooncake", "no_hashes"), 1);
  EXPECT_EQ(LeftOut("mooncake", "unknown_type"), 1);
  EXPECT_EQ(LeftOut("mooncake", "bad_event"), 1);
  EXPECT_EQ(LeftOut("mooncake", "no_room"), 0);
  EXPECT_EQ(LeftOut("trtllm", "bad_event"), -1) << "the source has another format";
}

TEST_F(PeerStreamsTest, ATrtllmPublisherThatLostEventsLacksBlocks) {
  Start(TrtllmPeer());
  const Encoder encode = TrtllmEncoder();
  Publish(encode(Batch(StoreTokens({Hash(1)}, Tokens(1, 4)))));
  EXPECT_EQ(AskWhenApplied(Tokens(1, 5))["state"], "synced");
  (void)encode(Batch(StoreTokens({Hash(2)}, Tokens(5, 4), Hash(1))));  // not published
  Publish(encode(Batch(StoreTokens({Hash(3)}, Tokens(21, 4)))));
  const Json after = AskWhenApplied(Tokens(21, 5));
  EXPECT_EQ(after["state"], "cleared");
  EXPECT_EQ(after["exact"], false);
  EXPECT_EQ(after["reusable_tokens"], 4);
  Publish(TrtllmEncoder()(Batch(StoreTokens({Hash(1)}, Tokens(1, 4)))));
  EXPECT_EQ(AskWhenApplied(Tokens(1, 5))["state"], "synced") << "the engine restarted";
}

}  // namespace
}  // namespace kvcast::router
