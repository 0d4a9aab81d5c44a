// Fuzz target: calls of a source, in any order. From one reset or snapshot to the next, the source
// delivers consecutive sequence numbers, each once. The hold-back stays within its limit.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/base/check.h"
#include "src/stream/follow/source.h"

namespace kvcast::stream {
namespace {

class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }

 private:
  std::span<const uint8_t> bytes_;
};

class Run final : private ReplicaSink, private SourceNetwork {
 public:
  explicit Run(std::span<const uint8_t> bytes)
      : input_(bytes), source_(Limits(), input_.Byte() % 4 != 0, *this, *this) {}

  void Go() {
    while (!input_.empty()) {
      now_ms_ += input_.Byte() % 64 * 40;
      Step();
      KV_CHECK(source_.hold_back().batches() <= kHoldBack);
      const SourceStatus status = source_.status(now_ms_);
      KV_CHECK(status.weight >= 0 && status.weight <= 1);
      if (expected_) KV_CHECK(*expected_ == status.next_seq);
    }
  }

 private:
  static constexpr size_t kHoldBack = 4;
  static SourceLimits Limits() {
    SourceLimits limits;
    limits.hold_back_batches = kHoldBack;
    limits.extension = true;
    return limits;
  }

  BatchResult Apply(Seq seq, Frame payload) override {
    KV_CHECK(!expected_ || *expected_ == seq.value);
    expected_ = seq.value + 1;
    return static_cast<BatchResult>(payload[0] % 16 == 0 ? payload[0] / 16 % 4 : 0);
  }
  void Reset(ResetReason) override { expected_.reset(); }
  bool TakesSnapshots() const override { return true; }
  void BeginSnapshot() override {
    KV_CHECK(!in_snapshot_);
    in_snapshot_ = true;
  }
  bool AddToSnapshot(Frame part) override {
    KV_CHECK(in_snapshot_);
    return part[0] % 8 != 0;
  }
  bool CommitSnapshot(const PublisherStatus& status) override {
    KV_CHECK(in_snapshot_);
    if (status.next_seq % 8 == 0) return false;
    in_snapshot_ = false;
    expected_ = status.next_seq;
    return true;
  }
  void DropSnapshot() override { in_snapshot_ = false; }
  DigestVerdict Compare(const PublisherStatus& status) override {
    return static_cast<DigestVerdict>(status.first_held % 3);
  }
  bool Repairs() const override { return true; }
  uint64_t DifferingBuckets(const PublisherStatus& status) override {
    KV_CHECK(!expected_ || *expected_ == status.next_seq);
    return status.next_seq % 7;
  }
  void BeginRepair(uint64_t buckets) override {
    KV_CHECK(!in_snapshot_ && buckets != 0 && ~buckets != 0);
    in_snapshot_ = true;
  }
  bool TakeTurn(AnswerLength) override { return true; }
  void Request(Frame) override {}
  void CloseRequest() override {}
  void RenewLive() override {}

  void Step() {
    switch (input_.Byte() % 8) {
      case 0:
        return source_.OnConnected(now_ms_);
      case 1:
        return source_.OnDisconnected();
      case 2:
      case 3:
        return source_.OnLive(TakeBatch(), now_ms_);
      case 4:
        return source_.OnReply({ReplyKind::kBatch, TakeBatch()}, now_ms_);
      case 5:
        return source_.OnReply({ReplyKind::kEnd, {kEndSeq, TakeEnd()}}, now_ms_);
      case 6:
        return source_.OnTimer(now_ms_);
      default:
        return source_.OnContradiction(now_ms_);
    }
  }

  Batch TakeBatch() {
    payload_ = {input_.Byte()};
    return {input_.Byte() % 32u, payload_};
  }
  Frame TakeEnd() {
    const uint8_t kind = input_.Byte();
    if (kind % 4 == 0) return {};
    PublisherStatus status;
    status.epoch.low = kind % 3;
    status.next_seq = input_.Byte() % 32u;
    status.first_held = input_.Byte() % (status.next_seq + 1);
    status.has_digests = kind % 5 != 0;
    payload_ = residency::EncodeStatus(status);
    return payload_;
  }

  Input input_;
  int64_t now_ms_ = 0;
  bool in_snapshot_ = false;
  std::optional<uint64_t> expected_;
  std::vector<uint8_t> payload_;
  Source source_;
};

}  // namespace
}  // namespace kvcast::stream

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcast::stream::Run({data, size}).Go();
  return 0;
}
