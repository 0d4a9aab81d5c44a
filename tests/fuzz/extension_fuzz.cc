// Fuzz target. If a KVX1 message can be parsed, encoding it gives the same bytes, and the message
// names each group on a tier at most once. Frames of any number and length cause no crash.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "src/base/check.h"
#include "src/residency/extension.h"
#include "src/stream/net/frames.h"

namespace kvcast {
namespace {

void CheckRequest(std::span<const uint8_t> input) {
  const auto request = residency::ParseRequest(input);
  if (!request) return;
  KV_CHECK(std::ranges::equal(residency::EncodeRequest(*request), input));
}

void CheckStatus(std::span<const uint8_t> input) {
  const Result<PublisherStatus> status = residency::ParseStatus(input);
  if (!status.ok()) return;
  KV_CHECK(residency::EncodeStatus(*status) == std::vector<uint8_t>(input.begin(), input.end()));
  KV_CHECK(status->first_held <= status->next_seq);
  const auto in_order = [](const GroupTierStatus& a, const GroupTierStatus& b) {
    return std::pair(a.digest.tier, a.digest.group) < std::pair(b.digest.tier, b.digest.group);
  };
  const auto& groups = status->groups;
  for (size_t i = 1; i < groups.size(); ++i) KV_CHECK(in_order(groups[i - 1], groups[i]));
}

// The first byte gives the number of frames. One byte with the length precedes each frame.
void CheckFrames(std::span<const uint8_t> input) {
  if (input.empty()) return;
  std::array<stream::Frame, 6> frames;
  const size_t count = input[0] % (frames.size() + 1);
  input = input.subspan(1);
  for (size_t i = 0; i < count; ++i) {
    const size_t size = input.empty() ? 0 : std::min<size_t>(input[0] % 32, input.size() - 1);
    if (input.empty()) continue;
    frames[i] = input.subspan(1, size);
    input = input.subspan(1 + size);
  }
  const stream::Frames message(frames.data(), count);
  const auto live = stream::ParseLive(message);
  KV_CHECK(!live || live->seq < stream::kSeqLimit);
  const stream::Reply reply = stream::ParseReply(message);
  KV_CHECK(reply.kind != stream::ReplyKind::kBatch || reply.batch.seq < stream::kSeqLimit);
  if (const auto start = stream::ParseReplayRequest(message)) {
    stream::ParseStart(*start);
    CheckRequest(*start);
  }
}

}  // namespace
}  // namespace kvcast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> input(data, size);
  kvcast::CheckRequest(input);
  kvcast::CheckStatus(input);
  kvcast::CheckFrames(input);
  return 0;
}
