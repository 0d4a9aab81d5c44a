// Functions to send and receive as a bare ZMTP peer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "apps/conformance/frames/zmtp_peer.h"
#include "src/stream/net/frames.h"

namespace kvcast::stream {

using FrameTexts = std::vector<std::string>;

inline std::string SeqText(uint64_t seq) {
  const SeqFrame frame = EncodeSeq(seq);
  return {frame.begin(), frame.end()};
}

inline FrameTexts Receive(tools::ZmtpPeer& peer) {
  Result<FrameTexts> frames = peer.ReceiveMessage();
  EXPECT_TRUE(frames.ok()) << frames.status().ToString();
  return frames.ok() ? *frames : FrameTexts{};
}

}  // namespace kvcast::stream
