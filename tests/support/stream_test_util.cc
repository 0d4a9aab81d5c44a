// SPDX-License-Identifier: Apache-2.0
#include "tests/support/stream_test_util.h"

#include <unistd.h>

#include <chrono>
#include <fstream>

namespace kvcast::stream {
namespace {

// A passing test does not reach this deadline, even on a busy machine.
constexpr std::chrono::seconds kDeadline(60);

}  // namespace

std::string TestText(uint64_t seq, int epoch) {
  return std::to_string(epoch) + "." + std::to_string(seq);
}

Bytes TestPayload(uint64_t seq, int epoch, size_t size) {
  const std::string text = TestText(seq, epoch);
  Bytes payload(text.begin(), text.end());
  if (payload.size() < size) payload.resize(size, 0);
  return payload;
}

bool Eventually(const std::function<bool()>& condition) {
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    never.wait_for(lock, std::chrono::milliseconds(1));
  }
  return true;
}

std::shared_ptr<ReplicaSink> RecordingSink::Of(WorkerId worker) {
  return std::make_shared<BatchSink>(
      [this, worker](Seq, std::span<const uint8_t> payload) {
        const auto* text = reinterpret_cast<const char*>(payload.data());
        Add(worker, std::string(text, strnlen(text, payload.size())));
      },
      [this, worker](ResetReason reason) {
        Add(worker, "reset " + std::string(ResetReasonName(reason)));
      });
}

Status AddSource(Subscriber& subscriber, RecordingSink& sink, const SourceConfig& source) {
  return subscriber.Add(source, sink.Of(source.worker));
}

void RecordingSink::Add(WorkerId worker, std::string text) {
  std::lock_guard lock(mutex_);
  const std::string prefix = worker.value == 0 ? "" : "w" + std::to_string(worker.value) + " ";
  deliveries_.push_back(prefix + text);
  changed_.notify_all();
}

std::vector<std::string> RecordingSink::deliveries() const {
  std::lock_guard lock(mutex_);
  return deliveries_;
}

bool RecordingSink::WaitFor(size_t deliveries) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, kDeadline, [&] { return deliveries_.size() >= deliveries; });
}

std::vector<std::string> Batches(uint64_t begin, uint64_t end, int epoch) {
  std::vector<std::string> batches;
  for (uint64_t seq = begin; seq < end; ++seq) batches.push_back(TestText(seq, epoch));
  return batches;
}

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t size = 0;
  size_t resident = 0;
  statm >> size >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

PublisherConfig TestPublisherConfig() {
  PublisherConfig config;
  config.endpoint = "tcp://127.0.0.1:0";
  config.replay_endpoint = "tcp://127.0.0.1:0";
  return config;
}

std::unique_ptr<Publisher> MakePublisher(const PublisherConfig& config) {
  Result<std::unique_ptr<Publisher>> publisher = Publisher::Create(config);
  EXPECT_TRUE(publisher.ok()) << publisher.status().ToString();
  return publisher.ok() ? std::move(publisher).value() : nullptr;
}

void PublishUpTo(Publisher& publisher, uint64_t end, int epoch, size_t size) {
  for (uint64_t seq = publisher.next_seq().value; seq < end; ++seq) {
    const Result<Seq> got = publisher.PublishPayload(TestPayload(seq, epoch, size));
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ASSERT_EQ(got->value, seq);
  }
}

}  // namespace kvcast::stream
