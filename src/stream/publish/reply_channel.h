// ReplyChannel: the output of ReplayScheduler. ReplayServer implements it with a ROUTER socket. The
// simulation implements it with a simulated network.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "src/stream/publish/replay_ring.h"

namespace kvcast::stream {

class ReplyChannel {
 public:
  virtual ~ReplyChannel() = default;
  // Queues one reply for the client of this identity, without blocking. `seq` is kEndSeq for an
  // END. `charge` is released on any thread, when the reply has left the process. False: the client
  // is not connected.
  virtual bool Send(const std::string& client, uint64_t seq, Payload payload,
                    std::shared_ptr<void> charge) = 0;
};

}  // namespace kvcast::stream
