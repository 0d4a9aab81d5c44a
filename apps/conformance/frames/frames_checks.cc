// SPDX-License-Identifier: Apache-2.0
#include "apps/conformance/frames/frames_checks.h"

namespace kvcast::tools {

void FramesTally::AddDifference(const std::string& line) {
  if (std::exchange(differs_, true)) return;
  report_.first_differences.push_back(path_ + ": " + record_ + ": " + line);
}

void FramesTally::Check(bool equal, const std::string& difference) {
  ++report_.compared;
  if (equal) {
    ++report_.equal;
  } else {
    AddDifference(difference);
  }
}

void FramesTally::CheckEqual(const std::string& ours, const std::string& recorded,
                             const std::string& name) {
  Check(ours == recorded, name + " is " + ours + ", recorded " + recorded);
}

void FramesTally::CheckFrames(const Result<FrameList>& ours, const FrameList& recorded,
                              const std::string& name) {
  if (ours.ok()) return CheckEqual(Hex(*ours), Hex(recorded), name);
  Check(false, name + ": " + ours.status().message() + ", recorded " + Hex(recorded));
}

void FramesTally::Unsupported(const std::string& record) {
  ++report_.unsupported;
  AddDifference(record + " is not supported");
}

Result<RecordedPublisher> RecordedPublisher::Start(PublisherConfig config) {
  config.endpoint = "tcp://127.0.0.1:0";
  config.replay_endpoint = "tcp://127.0.0.1:0";
  Result<std::unique_ptr<Publisher>> publisher = Publisher::Create(config);
  if (!publisher.ok()) return publisher.status();
  return RecordedPublisher(std::move(publisher).value());
}

Status RecordedPublisher::PublishAs(uint64_t seq, const std::string& payload) {
  const uint8_t filler = 0xc0;
  while (publisher_->next_seq().value < seq) {
    if (auto filled = publisher_->PublishPayload({&filler, 1}); !filled.ok()) {
      return filled.status();
    }
  }
  return publisher_
      ->PublishPayload({reinterpret_cast<const uint8_t*>(payload.data()), payload.size()})
      .status();
}

ReplayLayout LayoutOf(const FrameList& reply, const std::string& socket) {
  const size_t delimiter = socket == "REQ" ? 0 : 1;
  return reply.size() == delimiter + 2 ? ReplayLayout::kSeqPayload : ReplayLayout::kTopicSeqPayload;
}

}  // namespace kvcast::tools
