// The checks of class `frames`: recordings against our own publisher, replay server and source.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "apps/conformance/conformance.h"
#include "apps/conformance/frames/frames_record.h"
#include "kvcast/stream/publisher.h"

namespace kvcast::tools {

// Counts the checks of one file and keeps the line of the first difference.
class FramesTally {
 public:
  FramesTally(std::string path, ConformanceReport& report)
      : path_(std::move(path)), report_(report) {}

  void set_record(std::string name) { record_ = std::move(name); }
  void Check(bool equal, const std::string& difference);
  void CheckEqual(const std::string& ours, const std::string& recorded, const std::string& name);
  void CheckFrames(const Result<FrameList>& ours, const FrameList& recorded,
                   const std::string& name);
  void Unsupported(const std::string& record);

 private:
  void AddDifference(const std::string& line);

  const std::string path_;
  ConformanceReport& report_;
  std::string record_;
  bool differs_ = false;
};

// A publisher on free loopback ports. PublishAs publishes a batch under the wanted sequence number.
// Before that, it publishes the missing earlier batches with filler payloads.
class RecordedPublisher {
 public:
  static Result<RecordedPublisher> Start(PublisherConfig config);
  Publisher& publisher() { return *publisher_; }
  // REQUIRES: seq >= publisher().next_seq().
  Status PublishAs(uint64_t seq, const std::string& payload);

 private:
  explicit RecordedPublisher(std::unique_ptr<Publisher> p) : publisher_(std::move(p)) {}
  std::unique_ptr<Publisher> publisher_;
};

// Returns the layout of the replies to a client of this socket type. The number of frames of
// `reply` shows the layout.
ReplayLayout LayoutOf(const FrameList& reply, const std::string& socket);

// Checks the endpoint of the rank, and every live message that a subscriber gets from our
// publisher. Not ok: the machine failed (no sockets). A difference is not an error.
Status CheckLive(const FramesRecording& recording, FramesTally& tally);
// Checks every reply of our replay server.
Status CheckReplays(const FramesRecording& recording, FramesTally& tally);
// Checks the deliveries of a source that gets the messages and replies.
void CheckSource(const FramesRecording& recording, FramesTally& tally);
// Checks every byte that our publisher sends to the recorded client.
Status CheckCapture(const CapturedConnection& connection, FramesTally& tally);

}  // namespace kvcast::tools
