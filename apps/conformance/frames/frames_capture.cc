// Checks of byte captures: sends the bytes of the recorded client to our publisher over plain TCP,
// and compares the publisher's bytes with the recorded bytes.
// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/frames/frames_checks.h"
#include "apps/conformance/frames/zmtp_peer.h"

namespace kvcast::tools {
namespace {

// True: the client requests a replay, and each message begins with an empty delimiter frame. False:
// the client is a subscriber, and a message has the frames topic, sequence number and payload.
bool IsReplay(const CapturedConnection& connection) {
  return connection.name.find("replay") != std::string::npos;
}

PublisherConfig ConfigFor(const CapturedConnection& connection) {
  PublisherConfig config;
  const FrameList& first = connection.messages.front();
  if (IsReplay(connection)) config.replay_layout = LayoutOf(first, "DEALER");
  const size_t topic = IsReplay(connection) ? 1 : 0;
  if (first.size() == topic + 3) config.topic = first[topic];
  return config;
}

Status PublishAll(const CapturedConnection& connection, RecordedPublisher& publisher) {
  for (const FrameList& message : connection.messages) {
    const bool end_marker = message.back().empty();
    if (end_marker) continue;
    const Status status = publisher.PublishAs(*SeqOf(message), message.back());
    if (!status.ok()) return status;
  }
  return Status();
}

bool IsSupported(const CapturedConnection& connection) {
  for (const FrameList& message : connection.messages) {
    if (!SeqOf(message)) return false;
  }
  return !connection.messages.empty();
}

size_t LastClientChunk(const CapturedConnection& connection) {
  size_t last = 0;
  for (size_t i = 0; i < connection.chunks.size(); ++i) {
    if (!connection.chunks[i].from_server) last = i;
  }
  return last;
}

// Sends the chunks of the client, and compares the received bytes with the chunks of the server.
// The publisher must have the subscription before it publishes.
Status Play(const CapturedConnection& connection, RecordedPublisher& publisher, ZmtpPeer& peer,
            FramesTally& tally) {
  const size_t last_client_chunk = LastClientChunk(connection);
  size_t expected = 0;
  for (size_t i = 0; i < connection.chunks.size(); ++i) {
    const auto& chunk = connection.chunks[i];
    if (!chunk.from_server) {
      if (Status status = peer.Send(chunk.bytes); !status.ok()) return status;
      if (i != last_client_chunk || IsReplay(connection)) continue;
      if (Status status = peer.Fence(); !status.ok()) return status;
      if (Status status = PublishAll(connection, publisher); !status.ok()) return status;
      continue;
    }
    const Status status = peer.ReceiveAtLeast(expected + chunk.bytes.size());
    const std::string ours = peer.received().substr(expected, chunk.bytes.size());
    tally.CheckEqual(Hex(ours), Hex(chunk.bytes), "bytes from " + std::to_string(expected));
    if (!status.ok()) return Status();  // CheckEqual has counted the missing bytes
    expected += chunk.bytes.size();
  }
  return Status();
}

}  // namespace

Status CheckCapture(const CapturedConnection& connection, FramesTally& tally) {
  tally.set_record(connection.name);
  if (!IsSupported(connection)) {
    tally.Unsupported("no messages, or a message without a sequence number");
    return Status();
  }
  Result<RecordedPublisher> publisher = RecordedPublisher::Start(ConfigFor(connection));
  if (!publisher.ok()) return publisher.status();
  if (IsReplay(connection)) {
    if (Status status = PublishAll(connection, *publisher); !status.ok()) return status;
  }
  const Publisher& p = publisher->publisher();
  Result<ZmtpPeer> peer =
      ZmtpPeer::Connect(IsReplay(connection) ? p.replay_endpoint() : p.endpoint());
  if (!peer.ok()) return peer.status();
  return Play(connection, *publisher, *peer, tally);
}

}  // namespace kvcast::tools
