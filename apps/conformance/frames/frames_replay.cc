// Replay exchanges: sends the recorded requests to ReplayServer with the recorded socket type, and
// compares the replies with the recorded replies.
// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <optional>

#include "apps/conformance/frames/frames_checks.h"
#include "src/stream/net/socket.h"

namespace kvcast::tools {
namespace {

using stream::Frame;
using stream::Socket;

constexpr int kTimeoutMs = 10000;

Frame AsFrame(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

class ReplayClient {
 public:
  static Result<ReplayClient> Connect(const std::string& socket_name, const std::string& endpoint) {
    const int type = socket_name == "REQ" ? ZMQ_REQ : ZMQ_DEALER;
    Result<Socket> socket = Socket::Create(stream::Context::Create(), type);
    if (!socket.ok()) return socket.status();
    socket->SetOption(ZMQ_LINGER, 0);
    if (Status status = socket->Connect(endpoint); !status.ok()) return status;
    return ReplayClient(std::move(socket).value());
  }

  void Send(const FrameList& frames) {
    for (size_t i = 0; i < frames.size(); ++i) {
      socket_.Send(AsFrame(frames[i]), /*more=*/i + 1 < frames.size());
    }
  }
  Result<FrameList> Receive() {
    zmq_pollitem_t item = {socket_.get(), 0, ZMQ_POLLIN, 0};
    zmq_poll(&item, 1, kTimeoutMs);
    stream::Multipart message;
    if (socket_.Receive(message) == stream::RecvResult::kNone) {
      return Status(StatusCode::kUnavailable, "no reply in time");
    }
    FrameList frames;
    for (const Frame frame : message.frames()) frames.emplace_back(frame.begin(), frame.end());
    return frames;
  }

 private:
  explicit ReplayClient(Socket socket) : socket_(std::move(socket)) {}
  Socket socket_;
};

ReplayLayout LayoutOfRecording(const FramesRecording& recording) {
  for (const ReplayExchange& exchange : recording.replays) {
    if (!exchange.replies.empty()) return LayoutOf(exchange.replies[0], exchange.socket);
  }
  return ReplayLayout::kTopicSeqPayload;
}

FrameList EndMarker(ReplayLayout layout) {
  const std::string end(8, '\xff');
  if (layout == ReplayLayout::kSeqPayload) return {"", end, ""};
  return {"", "", end, ""};
}

// Requests are answered in order. One more request gets only the end marker, which proves that no
// other reply was sent before.
void CheckNothingMore(ReplayClient& client, ReplayLayout layout, const std::string& name,
                      FramesTally& tally) {
  client.Send({"", std::string(8, '\xff')});
  tally.CheckFrames(client.Receive(), EndMarker(layout), name + ": next request");
}

Status CheckExchange(const ReplayExchange& exchange, ReplayLayout layout,
                     const std::string& endpoint, FramesTally& tally) {
  if (exchange.socket != "DEALER" && exchange.socket != "REQ") {
    tally.Unsupported("a replay client of socket type " + exchange.socket);
    return Status();
  }
  Result<ReplayClient> client = ReplayClient::Connect(exchange.socket, endpoint);
  if (!client.ok()) return client.status();
  client->Send(exchange.request);
  for (size_t i = 0; i < exchange.replies.size(); ++i) {
    tally.CheckFrames(client->Receive(), exchange.replies[i],
                      exchange.name + ": reply " + std::to_string(i));
  }
  // A REQ socket receives one reply and drops the other replies.
  if (exchange.socket == "DEALER") CheckNothingMore(*client, layout, exchange.name, tally);
  return Status();
}

// Returns the batches that the recorded publisher published after its last restart. Batches that
// are neither in its messages nor in its replies are missing.
std::map<uint64_t, std::string> KnownBatches(const FramesRecording& recording) {
  std::map<uint64_t, std::string> batches;
  for (const FrameList& message : recording.messages) {
    const std::optional<uint64_t> seq = SeqOf(message);
    if (!seq) continue;
    // If the recorded publisher was restarted, its numbers repeat, and this line removes the older
    // batches.
    batches.erase(batches.lower_bound(*seq), batches.end());
    batches.emplace(*seq, message.back());
  }
  for (const ReplayExchange& exchange : recording.replays) {
    for (const FrameList& reply : exchange.replies) {
      const std::optional<uint64_t> seq = SeqOf(reply);
      if (seq && !reply.back().empty()) batches.emplace(*seq, reply.back());
    }
  }
  return batches;
}

}  // namespace

Status CheckReplays(const FramesRecording& recording, FramesTally& tally) {
  if (recording.replays.empty()) return Status();
  if (recording.buffer_steps == 0u) {
    tally.Unsupported("a publisher that keeps no batch");
    return Status();
  }
  PublisherConfig config;
  config.topic = recording.topic;
  config.data_parallel_rank = recording.rank;
  config.replay_layout = LayoutOfRecording(recording);
  config.ring_batches = recording.buffer_steps.value_or(config.ring_batches);
  Result<RecordedPublisher> publisher = RecordedPublisher::Start(config);
  if (!publisher.ok()) return publisher.status();
  for (const auto& [seq, payload] : KnownBatches(recording)) {
    if (Status status = publisher->PublishAs(seq, payload); !status.ok()) return status;
  }
  for (const ReplayExchange& exchange : recording.replays) {
    const Status status = CheckExchange(exchange, config.replay_layout,
                                        publisher->publisher().replay_endpoint(), tally);
    if (!status.ok()) return status;
  }
  return Status();
}

}  // namespace kvcast::tools
