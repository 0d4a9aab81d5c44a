// Live messages: our publisher publishes them again, and a plain ZMTP subscriber receives them.
// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <optional>

#include "apps/conformance/frames/frames_checks.h"
#include "apps/conformance/frames/zmtp_peer.h"

namespace kvcast::tools {
namespace {

// Recordings hide ports: <P> stands for a base port, <P+2> for that port plus 2.
std::string WithPorts(std::string endpoint) {
  constexpr int kBasePort = 20000;
  const size_t open = endpoint.find('<');
  const size_t close = endpoint.find('>');
  if (open == endpoint.npos || close == endpoint.npos || close < open) return endpoint;
  int offset = 0;
  const size_t plus = endpoint.find('+', open);
  if (plus < close) std::from_chars(&endpoint[plus + 1], &endpoint[close], offset);
  return endpoint.replace(open, close + 1 - open, std::to_string(kBasePort + offset));
}

// The address of the node on which the recordings were made.
constexpr char kRecordedHost[] = "127.0.0.1";

void CheckEndpoints(const FramesRecording& recording, FramesTally& tally) {
  for (const auto& [configured, bound] : recording.endpoints) {
    Result<std::string> ours = EndpointForRank(WithPorts(configured), recording.rank);
    if (ours.ok()) ours = NodeEndpoint(*ours, kRecordedHost);
    // With port 0, the system chose the recorded port.
    std::string recorded = WithPorts(bound);
    if (ours.ok() && ours->ends_with(":0"))
      recorded.replace(recorded.rfind(':'), recorded.npos, ":0");
    tally.CheckEqual(ours.ok() ? *ours : ours.status().message(), recorded, "endpoint");
  }
}

// A publisher, and a subscriber whose subscription the publisher has received.
class LiveRun {
 public:
  static Result<LiveRun> Start(const FramesRecording& recording) {
    PublisherConfig config;
    config.topic = recording.topic;
    config.data_parallel_rank = recording.rank;
    Result<RecordedPublisher> publisher = RecordedPublisher::Start(config);
    if (!publisher.ok()) return publisher.status();
    Result<ZmtpPeer> peer = Subscribe(publisher->publisher(), recording.subscription);
    if (!peer.ok()) return peer.status();
    return LiveRun(std::move(publisher).value(), std::move(peer).value());
  }

  uint64_t next_seq() { return publisher_.publisher().next_seq().value; }
  Status Publish(uint64_t seq, const std::string& payload) {
    return publisher_.PublishAs(seq, payload);
  }
  // Receives messages until a message has a sequence number of at least `seq`, or has no sequence
  // number. Returns that message.
  Result<FrameList> Receive(uint64_t seq) {
    for (;;) {
      Result<FrameList> frames = subscriber_.ReceiveMessage();
      if (!frames.ok()) return frames;
      const std::optional<uint64_t> got = SeqOf(*frames);
      if (!got || *got >= seq) return frames;
    }
  }
  // Publishes a message. True: this subscriber does not receive the message, and a subscriber to
  // all topics does.
  Result<bool> NothingArrives() {
    Result<ZmtpPeer> other = Subscribe(publisher_.publisher(), "");
    if (!other.ok()) return other.status();
    if (Status status = Publish(next_seq(), "x"); !status.ok()) return status;
    if (Result<FrameList> seen = other->ReceiveMessage(); !seen.ok()) return seen.status();
    if (Status status = subscriber_.Fence(); !status.ok()) return status;
    return subscriber_.received().empty();
  }

 private:
  LiveRun(RecordedPublisher publisher, ZmtpPeer subscriber)
      : publisher_(std::move(publisher)), subscriber_(std::move(subscriber)) {}

  static Result<ZmtpPeer> Subscribe(Publisher& publisher, const std::string& topic) {
    Result<ZmtpPeer> peer = ZmtpPeer::Connect(publisher.endpoint());
    if (!peer.ok()) return peer;
    if (Status status = peer->Handshake("SUB"); !status.ok()) return status;
    if (Status status = peer->Subscribe(topic); !status.ok()) return status;
    if (Status status = peer->Fence(); !status.ok()) return status;
    return peer;
  }

  RecordedPublisher publisher_;
  ZmtpPeer subscriber_;
};

Status CheckFiltered(const FramesRecording& recording, FramesTally& tally) {
  Result<LiveRun> run = LiveRun::Start(recording);
  if (!run.ok()) return run.status();
  const Result<bool> nothing = run->NothingArrives();
  if (!nothing.ok()) return nothing.status();
  tally.Check(*nothing, "a subscription that does not match the topic gets messages");
  return Status();
}

}  // namespace

Status CheckLive(const FramesRecording& recording, FramesTally& tally) {
  CheckEndpoints(recording, tally);
  if (!recording.topic.starts_with(recording.subscription)) {
    return CheckFiltered(recording, tally);
  }
  std::optional<LiveRun> run;
  for (const FrameList& message : recording.messages) {
    const std::optional<uint64_t> seq = SeqOf(message);
    if (!seq) {
      tally.Unsupported("a live message without a sequence number");
      continue;
    }
    // A repeated number: the recorded publisher was restarted.
    if (!run || *seq < run->next_seq()) {
      Result<LiveRun> started = LiveRun::Start(recording);
      if (!started.ok()) return started.status();
      run.emplace(std::move(started).value());
    }
    if (Status status = run->Publish(*seq, message.back()); !status.ok()) return status;
    tally.CheckFrames(run->Receive(*seq), message, "live message " + std::to_string(*seq));
  }
  return Status();
}

}  // namespace kvcast::tools
