// Feeds recorded messages and replies into the state machine of a source.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "apps/conformance/frames/frames_checks.h"
#include "src/stream/follow/source.h"

namespace kvcast::tools {
namespace {

using stream::Batch;
using stream::Frame;

// Everything that a source delivers, in order: "3:<payload in hex>", "reset restart", ...
using Deliveries = std::vector<std::string>;

std::vector<Frame> ViewsOf(const FrameList& frames) {
  std::vector<Frame> views;
  for (const std::string& frame : frames) {
    views.emplace_back(reinterpret_cast<const uint8_t*>(frame.data()), frame.size());
  }
  return views;
}

std::string Delivery(uint64_t seq, std::string_view payload) {
  return std::to_string(seq) + ":" + Hex(payload);
}

std::string ResetDelivery(ResetReason reason) {
  return "reset " + std::string(ResetReasonName(reason));
}

std::string Join(const Deliveries& deliveries) {
  std::string text;
  for (const std::string& delivery : deliveries) text += delivery + " ";
  return text;
}

// A source whose replay requests are answered from a recorded exchange.
class SourceRun final : private ReplicaSink, private stream::SourceNetwork {
 public:
  explicit SourceRun(const std::vector<FrameList>* replies)
      : replies_(replies), source_({}, replies != nullptr, *this, *this) {}

  void Connect() { source_.OnConnected(/*now_ms=*/0); }
  void Live(const FrameList& message) {
    const std::vector<Frame> views = ViewsOf(message);
    if (const std::optional<Batch> batch = stream::ParseLive(views)) {
      source_.OnLive(*batch, /*now_ms=*/0);
    }
  }
  // Answers replay requests until the source sends none.
  void Answer() {
    while (std::exchange(asked_, false)) {
      for (const FrameList& reply : *replies_) {
        source_.OnReply(stream::ParseReply(ViewsOf(reply)), /*now_ms=*/0);
      }
    }
  }
  const Deliveries& deliveries() const { return deliveries_; }
  SourceStatus status() const { return source_.status(/*now_ms=*/0); }

 private:
  BatchResult Apply(Seq seq, Frame payload) override {
    const auto* text = reinterpret_cast<const char*>(payload.data());
    deliveries_.push_back(Delivery(seq.value, {text, payload.size()}));
    return BatchResult::kApplied;
  }
  void Reset(ResetReason reason) override { deliveries_.push_back(ResetDelivery(reason)); }
  bool TakeTurn(stream::AnswerLength) override { return true; }
  void Request(Frame) override { asked_ = true; }
  void CloseRequest() override {}
  void RenewLive() override {}

  const std::vector<FrameList>* const replies_;
  bool asked_ = false;
  Deliveries deliveries_;
  stream::Source source_;
};

// Without replay, every message is delivered. If the sequence number decreases, the publisher was
// restarted. If the number increases by more than 1, batches are lost.
void CheckLiveOnly(const FramesRecording& recording, FramesTally& tally) {
  Deliveries expected;
  uint64_t next = 0;
  uint64_t lost = 0;
  SourceRun run(nullptr);
  run.Connect();
  for (const FrameList& message : recording.messages) {
    const uint64_t seq = *SeqOf(message);
    if (!expected.empty() && seq < next) expected.push_back(ResetDelivery(ResetReason::kRestart));
    if (!expected.empty() && seq > next) {
      expected.push_back(ResetDelivery(ResetReason::kLostBatches));
      lost += seq - next;
    }
    expected.push_back(Delivery(seq, message.back()));
    next = seq + 1;
    run.Live(message);
  }
  tally.CheckEqual(Join(run.deliveries()), Join(expected), "deliveries without replay");
  tally.CheckEqual(std::to_string(run.status().lost), std::to_string(lost), "lost batches");
}

// A subscriber joins at message `joined` and gets the replies of `exchange`. It must deliver every
// batch of the messages and of the replies once and in order, even if messages and replies overlap.
void CheckJoin(const FramesRecording& recording, size_t joined, const ReplayExchange& exchange,
               FramesTally& tally) {
  std::map<uint64_t, std::string> batches;
  SourceRun run(&exchange.replies);
  run.Connect();
  for (size_t i = joined; i < recording.messages.size(); ++i) {
    batches.emplace(*SeqOf(recording.messages[i]), recording.messages[i].back());
    run.Live(recording.messages[i]);
  }
  for (const FrameList& reply : exchange.replies) {
    if (!reply.back().empty()) batches.emplace(SeqOf(reply).value_or(0), reply.back());
  }
  run.Answer();
  Deliveries expected;
  uint64_t next = batches.begin()->first;
  for (const auto& [seq, payload] : batches) {
    if (seq != next) expected.push_back(ResetDelivery(ResetReason::kLostBatches));
    expected.push_back(Delivery(seq, payload));
    next = seq + 1;
  }
  tally.CheckEqual(
      Join(run.deliveries()), Join(expected),
      "deliveries after joining at message " + std::to_string(joined) + " with " + exchange.name);
}

bool IsOneEpoch(const FramesRecording& recording) {
  return std::ranges::is_sorted(recording.messages, {},
                                [](const FrameList& m) { return *SeqOf(m); });
}

}  // namespace

void CheckSource(const FramesRecording& recording, FramesTally& tally) {
  const auto has_seq = [](const FrameList& message) { return SeqOf(message).has_value(); };
  if (!std::ranges::all_of(recording.messages, has_seq)) return;
  if (!recording.messages.empty()) CheckLiveOnly(recording, tally);
  if (!IsOneEpoch(recording)) return;
  for (const ReplayExchange& exchange : recording.replays) {
    // A REQ client never sees the end of a replay. A request without replies is not a replay.
    if (exchange.socket != "DEALER" || exchange.replies.empty()) continue;
    for (size_t joined = 1; joined < recording.messages.size(); ++joined) {
      CheckJoin(recording, joined, exchange, tally);
    }
  }
}

}  // namespace kvcast::tools
