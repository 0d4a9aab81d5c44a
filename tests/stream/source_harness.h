// A Source that the test drives by hand. The harness records the deliveries of the Source as text,
// and the start of its latest request.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/stream/follow/source.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {

class SourceHarness : private ReplicaSink, private SourceNetwork {
 public:
  explicit SourceHarness(bool can_replay, SourceLimits limits = {})
      : source_(limits, can_replay, *this, *this) {}

  // Connects and applies the live batches 0 to end-1. With replay, the first answer has no batch.
  void JoinAndApply(uint64_t end) {
    Connect();
    if (TakeRequest()) End();
    LiveUpTo(end);
    TakeDeliveries();
  }

  void Resume(const SavedPosition& position) { source_.Resume(position); }
  std::optional<SavedPosition> Position() const { return source_.Position(); }

  void Connect() { source_.OnConnected(now_ms); }
  void Disconnect() { source_.OnDisconnected(); }
  void Live(uint64_t seq, int epoch = 0) {
    const Bytes payload = TestPayload(seq, epoch);
    source_.OnLive({seq, payload}, now_ms);
  }
  void LiveUpTo(uint64_t end, int epoch = 0) {
    for (uint64_t seq = 0; seq < end; ++seq) Live(seq, epoch);
  }
  void Reply(uint64_t seq, int epoch = 0) {
    const Bytes payload = TestPayload(seq, epoch);
    source_.OnReply({ReplyKind::kBatch, {seq, payload}}, now_ms);
  }
  // Ends the connection of the open request.
  void Cut() { source_.OnReplyCut(now_ms); }
  void End() { source_.OnReply({ReplyKind::kEnd, {}}, now_ms); }
  // Sends the replies begin..end-1 and the end marker, like a ring that holds these batches.
  void Replay(uint64_t begin, uint64_t end, int epoch = 0) {
    for (uint64_t seq = begin; seq < end; ++seq) Reply(seq, epoch);
    End();
  }
  void Timer() { source_.OnTimer(now_ms); }
  void WaitUntilDue() {
    now_ms = source_.deadline_ms();
    source_.OnTimer(now_ms);
  }

  // Answers no request until `timeouts` requests have timed out.
  void WaitForTimeouts(uint64_t timeouts) {
    while (status().replay_timeouts < timeouts) WaitUntilDue();
  }

  // Returns the start of the latest request since the previous call; nullopt: no request.
  std::optional<uint64_t> TakeRequest() { return std::exchange(request_, std::nullopt); }
  std::vector<std::string> TakeDeliveries() { return std::exchange(deliveries_, {}); }
  SourceStatus status() const { return source_.status(now_ms); }
  SourceState state() const { return source_.status(now_ms).state; }
  // Returns the number of renewals of the live connection since the previous call.
  int TakeRenewals() { return std::exchange(renewals_, 0); }
  bool replay_open() const { return open_; }
  int64_t deadline_ms() const { return source_.deadline_ms(); }

  int64_t now_ms = 1000;
  BatchResult next_result = BatchResult::kApplied;    // of the next applied batch
  BatchResult other_results = BatchResult::kApplied;  // of all batches after that batch

 private:
  BatchResult Apply(Seq, Frame payload) override {
    deliveries_.emplace_back(payload.begin(), payload.end());
    return std::exchange(next_result, other_results);
  }
  void Reset(ResetReason reason) override {
    deliveries_.push_back("reset " + std::string(ResetReasonName(reason)));
  }
  bool TakeTurn(AnswerLength) override { return true; }
  void Request(Frame start) override {
    request_ = ParseStart(start);
    open_ = true;
  }
  void CloseRequest() override { open_ = false; }
  void RenewLive() override { ++renewals_; }

  std::vector<std::string> deliveries_;
  std::optional<uint64_t> request_;
  bool open_ = false;
  int renewals_ = 0;
  Source source_;
};

}  // namespace kvcast::stream
