// SourceNetwork: the network operations that a Source requests. SourcePump implements it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "src/stream/net/frames.h"

namespace kvcast::stream {

// The length of the answer to a request.
enum class AnswerLength : uint8_t {
  kShort,  // a status or a challenge
  kLong,   // a replay, a snapshot, or the digests of all buckets
};

// The On... functions of a Source call these functions. An implementation must not call the Source.
class SourceNetwork {
 public:
  virtual ~SourceNetwork() = default;
  // Must be called before each request. False: requests of other sources come first.
  // Source::OnTurn must be called later, unless CloseRequest is called before.
  virtual bool TakeTurn(AnswerLength length) = 0;
  // Sends a request; `start` is its last frame. Replies to an earlier request must not be fed after
  // this call.
  virtual void Request(Frame start) = 0;
  // Replies to the open request must not be fed after this call. The turn is given back.
  virtual void CloseRequest() = 0;
  // Drops the live connection and makes a new one. The old connection may still hold messages of an
  // ended epoch. These messages must not be fed after this call.
  virtual void RenewLive() = 0;
};

}  // namespace kvcast::stream
