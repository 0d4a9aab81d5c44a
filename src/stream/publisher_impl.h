// The parts of a Publisher, in the order in which they start; they stop in reverse.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "kvcast/publisher.h"
#include "src/stream/live_sender.h"
#include "src/stream/replay_ring.h"
#include "src/stream/replay_server.h"

namespace kvcast {

class Publisher::Impl {
 public:
  Impl(const PublisherConfig& config, std::string endpoint, std::string replay_endpoint)
      : config(config),
        endpoint(std::move(endpoint)),
        replay_endpoint(std::move(replay_endpoint)),
        ring(config.ring_batches, config.ring_bytes) {}
  ~Impl() { ring.Close(); }

  const PublisherConfig config;
  const std::string endpoint;
  const std::string replay_endpoint;
  std::atomic<uint64_t> encode_errors{0};
  stream::ReplayRing ring;
  std::unique_ptr<stream::LiveSender> live;
  std::unique_ptr<stream::ReplayServer> replay;
};

}  // namespace kvcast
