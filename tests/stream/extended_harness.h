// A Source that the test drives by hand. Its publisher supports KVX1. The harness records the
// actions of the Source as text, and its latest request.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/stream/follow/source.h"
#include "tests/support/stream_test_util.h"

namespace kvcast::stream {

using residency::ExtensionRequest;
using residency::Verb;

class ExtendedHarness : public ::testing::Test, private ReplicaSink, private SourceNetwork {
 protected:
  // `can_repair`: the sink can compare and replace buckets.
  explicit ExtendedHarness(bool can_repair = false, uint64_t jitter_seed = 0)
      : repairs(can_repair), source(Limits(jitter_seed), /*can_replay=*/true, *this, *this) {}

  static SourceLimits Limits(uint64_t jitter_seed = 0) {
    SourceLimits limits;
    limits.extension = true;
    limits.jitter_seed = jitter_seed;
    return limits;
  }
  // Returns the latest extension request since the previous call; nullopt: no request.
  std::optional<ExtensionRequest> Asked() { return std::exchange(asked, std::nullopt); }
  std::optional<Verb> AskedVerb() {
    const auto request = Asked();
    return request ? std::optional(request->verb) : std::nullopt;
  }
  void End(uint64_t next_seq, uint64_t epoch = 1, uint64_t first_held = 0) {
    PublisherStatus status;
    status.epoch.low = epoch;
    status.first_held = first_held;
    status.next_seq = next_seq;
    status.has_digests = true;
    End(status);
  }
  void End(const PublisherStatus& status) {
    const std::vector<uint8_t> payload = residency::EncodeStatus(status);
    source.OnReply({ReplyKind::kEnd, {kEndSeq, payload}}, now_ms);
  }
  // Sends the end of an answer from a publisher that has lost its own state.
  void EndWithoutDigests(uint64_t next_seq, uint64_t epoch = 1) {
    PublisherStatus status;
    status.epoch.low = epoch;
    status.next_seq = next_seq;
    End(status);
  }
  void PlainEnd() { source.OnReply({ReplyKind::kEnd, {}}, now_ms); }
  void Reply(uint64_t seq, int epoch = 0) {
    const Bytes payload = TestPayload(seq, epoch);
    source.OnReply({ReplyKind::kBatch, {seq, payload}}, now_ms);
  }
  void Live(uint64_t seq, int epoch = 0) {
    const Bytes payload = TestPayload(seq, epoch);
    source.OnLive({seq, payload}, now_ms);
  }
  // Connects twice. The Source trusts only the second connection, because a status had already
  // named the epoch when this connection was made.
  void Join(uint64_t next_seq, uint64_t first_held = 0, uint64_t epoch = 1) {
    source.OnConnected(now_ms);
    End(next_seq, epoch, first_held);
    ASSERT_EQ(std::exchange(renewals, 0), 1);
    source.OnConnected(now_ms);
    End(next_seq, epoch, first_held);
  }
  void JoinEmpty() {
    Join(0);
    Asked();
    ASSERT_EQ(state(), SourceState::kSynced);
  }
  void WaitUntilDue() {
    now_ms = source.deadline_ms();
    source.OnTimer(now_ms);
  }
  Texts Log() { return std::exchange(log, {}); }
  SourceState state() const { return source.status(now_ms).state; }
  SourceReason reason() const { return source.status(now_ms).reason; }

  int64_t now_ms = 1000;
  const bool repairs;
  uint64_t differing = 0;
  Texts log;
  std::optional<ExtensionRequest> asked;
  std::optional<uint64_t> plain_replay_start;
  int renewals = 0;
  bool commits = true;
  bool wants_challenge = false;
  DigestVerdict verdict = DigestVerdict::kEqual;
  BatchResult next_result = BatchResult::kApplied;
  Source source;

 private:
  BatchResult Apply(Seq, Frame payload) override {
    log.emplace_back(payload.begin(), payload.end());
    return std::exchange(next_result, BatchResult::kApplied);
  }
  void Reset(ResetReason reason) override {
    log.push_back("reset " + std::string(ResetReasonName(reason)));
  }
  bool TakesSnapshots() const override { return true; }
  void BeginSnapshot() override { log.push_back("begin"); }
  bool AddToSnapshot(Frame) override { return true; }
  bool CommitSnapshot(const PublisherStatus&) override {
    log.push_back(commits ? "commit" : "refuse");
    return commits;
  }
  void DropSnapshot() override { log.push_back("drop"); }
  DigestVerdict Compare(const PublisherStatus&) override { return verdict; }
  bool Repairs() const override { return repairs; }
  uint64_t DifferingBuckets(const PublisherStatus& status) override {
    log.push_back("compare at " + std::to_string(status.next_seq));
    return differing;
  }
  void BeginRepair(uint64_t buckets) override {
    log.push_back("repair " + std::to_string(buckets));
  }
  bool WantsChallenge() const override { return wants_challenge; }
  uint64_t BeginChallenge() override { return 0xabcd; }
  void OnChallengeAnswer(Frame payload) override {
    log.push_back("answer " + std::string(payload.begin(), payload.end()));
  }
  bool TakeTurn(AnswerLength) override { return true; }
  void Request(Frame start) override {
    if (const auto request = residency::ParseRequest(start)) {
      asked = request;
    } else {
      plain_replay_start = ParseStart(start);
    }
  }
  void CloseRequest() override {}
  void RenewLive() override { ++renewals; }
};

}  // namespace kvcast::stream
