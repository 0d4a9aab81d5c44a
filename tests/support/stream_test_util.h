// Shared parts of the stream tests: payloads, a recording sink, publishers on free ports.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kvcast/stream/publisher.h"
#include "kvcast/stream/subscriber.h"

namespace kvcast::stream {

using Texts = std::vector<std::string>;

using Bytes = std::vector<uint8_t>;

// A payload of at least `size` bytes that names its sequence number and the epoch of the publisher.
Bytes TestPayload(uint64_t seq, int epoch = 0, size_t size = 0);
std::string TestText(uint64_t seq, int epoch = 0);

// Polls `condition` every millisecond. Returns true as soon as the condition holds, or false after
// a minute.
bool Eventually(const std::function<bool()>& condition);

// Returns the resident memory of this process.
size_t ResidentBytes();

// Records the deliveries of a subscriber as texts. "0.5" is batch 5 of publisher epoch 0;
// TestPayload contains this name. For a worker other than 0, the text begins with "w<worker> ". A
// reset is "reset " and the name of its reason, for example "reset restart".
class RecordingSink {
 public:
  // Returns the sink of one worker. The RecordingSink must outlive the returned sink.
  std::shared_ptr<ReplicaSink> Of(WorkerId worker);
  std::vector<std::string> deliveries() const;
  // Waits until at least `deliveries` deliveries have arrived. Returns false after a minute.
  bool WaitFor(size_t deliveries) const;

 private:
  void Add(WorkerId worker, std::string text);

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::string> deliveries_;
};

// Follows a source and records its batches.
Status AddSource(Subscriber& subscriber, RecordingSink& sink, const SourceConfig& source);

// "<epoch>.<begin>" ... "<epoch>.<end - 1>".
std::vector<std::string> Batches(uint64_t begin, uint64_t end, int epoch = 0);

PublisherConfig TestPublisherConfig();
std::unique_ptr<Publisher> MakePublisher(const PublisherConfig& config);
// Publishes TestPayload from the next number up to `end`, exclusive.
void PublishUpTo(Publisher& publisher, uint64_t end, int epoch = 0, size_t size = 0);

}  // namespace kvcast::stream
