// SourceNetwork: what a Source wants done on the network. SourcePump implements it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/stream/net/frames.h"

namespace kvcast::stream {

// Called from inside the On... functions of a Source; must not call back.
class SourceNetwork {
 public:
  virtual ~SourceNetwork() = default;
  // False: replays and snapshots of other sources come first. Source::OnTurn will be called, unless
  // CloseRequest is called before.
  virtual bool TakeTurn() = 0;
  // Sends a request; `start` is its last frame. Replies to an earlier request must not be fed any
  // more.
  virtual void Request(Frame start) = 0;
  // No replies are wanted any more. The turn is given back.
  virtual void CloseRequest() = 0;
  // Drop the live connection and make a new one. The old one may still hold messages of an epoch
  // that is over; they must not be fed any more.
  virtual void RenewLive() = 0;
};

}  // namespace kvcast::stream
