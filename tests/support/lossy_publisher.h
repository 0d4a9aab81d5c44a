// LossyPublisher: a publisher for tests. The test chooses the live messages. The replay server is
// the production ReplayServer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "src/base/clock.h"
#include "src/stream/net/socket.h"
#include "src/stream/publish/replay_server.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {

class LossyPublisher {
 public:
  struct Config {
    std::string endpoint = "tcp://127.0.0.1:0";
    std::string replay_endpoint = "tcp://127.0.0.1:0";
    ReplayLayout layout = ReplayLayout::kTopicSeqPayload;
    size_t ring_batches = 1000;
    int epoch = 0;
    bool connects = false;  // the PUB socket connects to `endpoint`
  };

  LossyPublisher() : LossyPublisher(Config()) {}
  explicit LossyPublisher(const Config& config)
      : epoch_(config.epoch),
        ring_(config.ring_batches, SIZE_MAX),
        pub_(Open(ZMQ_PUB, config.endpoint, config.connects)) {
    endpoint_ = pub_.last_endpoint();
    Socket router = Open(ZMQ_ROUTER, config.replay_endpoint);
    router.SetOption(ZMQ_ROUTER_MANDATORY, 1);
    replay_endpoint_ = router.last_endpoint();
    ReplayServerConfig server;
    server.topic = "topic";
    server.layout = config.layout;
    server.now_us = SteadyUs;
    server_ =
        std::make_unique<ReplayServer>(std::move(router), Waker::Create().value(), server, ring_);
  }

  // Appends a batch to the ring and does not send the batch, so the live stream lacks the batch.
  void Lose() { AppendToRing(); }
  // Appends a batch to the ring and sends it.
  void Send() {
    const uint64_t seq = ring_.next_seq();
    AppendToRing();
    SendFrames({"topic", SeqText(seq), TestText(seq, epoch_)});
  }
  void SendFrames(const std::vector<std::string>& frames) {
    for (size_t i = 0; i < frames.size(); ++i) {
      const auto* data = reinterpret_cast<const uint8_t*>(frames[i].data());
      pub_.Send({data, frames[i].size()}, /*more=*/i + 1 < frames.size());
    }
  }
  uint64_t next_seq() const { return ring_.next_seq(); }
  static std::string SeqText(uint64_t seq) {
    const SeqFrame frame = EncodeSeq(seq);
    return {frame.begin(), frame.end()};
  }

  SourceConfig source(WorkerId worker = WorkerId(0)) const {
    return {worker, endpoint_, replay_endpoint_, ""};
  }
  const ReplayCounters& replay_counters() const { return server_->counters(); }

 private:
  void AppendToRing() {
    ring_.Append(std::make_shared<const Bytes>(TestPayload(ring_.next_seq(), epoch_)));
  }
  Socket Open(int type, const std::string& endpoint, bool connects = false) {
    Socket socket = Socket::Create(context_, type).value();
    socket.SetOption(ZMQ_LINGER, 0);
    socket.SetOption(ZMQ_SNDHWM, 0);
    const Status status = connects ? socket.Connect(endpoint) : socket.Bind(endpoint);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return socket;
  }

  const int epoch_;
  std::shared_ptr<Context> context_ = Context::Create();
  ReplayRing ring_;
  Socket pub_;
  std::string endpoint_;
  std::string replay_endpoint_;
  std::unique_ptr<ReplayServer> server_;
};

}  // namespace kvcast::stream
