// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>
#include <utility>

#include "src/residency/extension.h"
#include "src/stream_sim/link.h"

namespace kvcast::sim {

void Link::OpenRequest(Frame start) {
  const auto asked = residency::ParseRequest(start);
  const bool has_short_answer =
      asked && (asked->verb == residency::Verb::kChallenge ||
                (asked->verb == residency::Verb::kStatus && asked->argument == 0));
  if (!has_short_answer && !pump_->has_turn())
    record_.Fail("Bounded", "a replay or snapshot is requested without a turn");
  ++request_.number;
  request_.open = true;
  request_.asks_snapshot = asked && asked->verb == residency::Verb::kSnapshot;
  request_.reply_cut = false;
  request_.replies_sent = 0;
  request_.last_reply_ms = 0;
  request_.replies.clear();
  const int64_t arrival = AfterPartition(agenda_.now_ms() + random_.Between(1, 4));
  agenda_.At(arrival, [this, request = request_.number,
                       bytes = std::vector(start.begin(), start.end())] { Ask(request, bytes); });
}

void Link::CloseRequest() {
  request_.open = request_.reply_cut = false;
  request_.replies.clear();
  if (pump_->has_turn()) agenda_.At(agenda_.now_ms(), on_turns_);
}

// A request waits until the publisher is up. It is lost if the life that received it ends.
void Link::Ask(uint64_t request, const std::vector<uint8_t>& start) {
  if (!request_.open || request != request_.number) return;
  const int64_t now = agenda_.now_ms();
  if (publisher_paused() || now < publisher_up_ms_) {
    return agenda_.At(std::max(faults_.until_ms(FaultKind::kPausePublisher), publisher_up_ms_),
                      [this, request, start] { Ask(request, start); });
  }
  publisher_.Ask(std::to_string(request), start);
  WakeServer(0);
}

void Link::WakeServer(int64_t in_ms) {
  const int64_t due =
      std::max(agenda_.now_ms() + in_ms, faults_.until_ms(FaultKind::kPausePublisher));
  if (server_due_ms_ >= agenda_.now_ms() && server_due_ms_ <= due) return;
  server_due_ms_ = due;
  agenda_.At(due, [this] { Serve(); });
}

// A reply that was read or dropped has refunded its charge, so a paused client may have credit
// again.
void Link::WakeServerForCredit() {
  if (publisher_.has_credit()) WakeServer(0);
}

void Link::Serve() {
  server_due_ms_ = stream::kNever;
  if (publisher_paused()) return WakeServer(0);
  const int64_t wait_ms = publisher_.Serve();
  if (wait_ms < 0) return WakeServerForCredit();
  WakeServer(std::max(wait_ms, 1 + faults_.Amount(FaultKind::kSlowReplies) / 4));
}

bool Link::Send(const std::string& client, uint64_t seq, Payload payload,
                std::shared_ptr<void> charge) {
  if (client == LegacyReader::kName) {
    reader_.OnReply(seq, payload);
    return true;
  }
  if (!request_.open || client != std::to_string(request_.number)) return false;
  if (seq != stream::kEndSeq && !SurvivesReply(seq)) {
    BreakReplies();
    return false;
  }
  // A legacy server drops the replies that do not fit into its pipe.
  const int64_t cut = publisher_.extended() ? 0 : faults_.Amount(FaultKind::kCutReplies);
  if (seq != stream::kEndSeq && cut > 0 && ++request_.replies_sent > cut && random_.Percent(80)) {
    ++record_.reached["replies cut by the server"];
    return true;
  }
  SendReply({request_.number, {seq, std::move(payload)}, std::move(charge)});
  return true;
}

// True: the connection stays open after this reply.
bool Link::SurvivesReply(uint64_t seq) {
  const bool oversize = !request_.asks_snapshot && oversize_.contains({publisher_.life(), seq});
  if (oversize) ++record_.reached["oversized replies that ended their connection"];
  return !oversize && !Occurs(FaultKind::kBreakReplies);
}

void Link::SendReply(const ReplyMessage& reply) {
  if (Occurs(FaultKind::kDropReplies)) {
    ++record_.reached["replies dropped"];
    return;
  }
  const int64_t slow = faults_.Amount(FaultKind::kSlowReplies);
  int64_t arrival =
      AfterPartition(agenda_.now_ms() + Latency() + (slow > 0 ? random_.Roll(slow) : 0));
  const bool scrambled = Occurs(FaultKind::kScrambleReplies);
  if (scrambled) {
    ++record_.reached["replies scrambled"];
    arrival += random_.Between(0, 30);
  } else {
    arrival = request_.last_reply_ms = std::max(arrival, request_.last_reply_ms);
  }
  const auto arrive = [this, reply] {
    if (!request_.open || reply.request != request_.number) {
      ++record_.reached["late replies of a closed request"];
      return WakeServerForCredit();
    }
    request_.replies.push_back(reply);
    Wake();
  };
  if (scrambled && random_.Percent(50)) agenda_.At(arrival + random_.Roll(30), arrive);
  agenda_.At(arrival, arrive);
}

// Replies that were sent earlier still arrive. Later replies do not arrive.
void Link::BreakReplies() {
  const int64_t arrival =
      std::max(AfterPartition(agenda_.now_ms() + Latency()), request_.last_reply_ms);
  agenda_.At(arrival, [this, request = request_.number] {
    if (!request_.open || request != request_.number) return;
    request_.reply_cut = true;
    ++record_.reached["reply connections broken"];
    Wake();
  });
}

std::optional<stream::Frames> Link::ReceiveReply() {
  CheckPump();
  if (request_.replies.empty()) return std::nullopt;
  ++record_.events;
  received_.entry = std::move(request_.replies.front().entry);
  request_.replies.pop_front();
  received_.seq = stream::EncodeSeq(received_.entry.seq);
  received_.frames = {Frame{}, Frame{}, Frame(received_.seq), Frame(*received_.entry.payload)};
  follower_.NoteHeard(follower_ms());
  const stream::Frames parts(received_.frames);
  return publisher_.topic_in_replies() ? parts : parts.subspan(1);
}

void Link::AskSnapshot() {
  constexpr std::string_view kAsk = "snapshot";
  if (reader_.waits() || agenda_.now_ms() < publisher_up_ms_) return;
  reader_.Ask();
  publisher_.Ask(LegacyReader::kName, {reinterpret_cast<const uint8_t*>(kAsk.data()), kAsk.size()});
  WakeServer(0);
}

}  // namespace kvcast::sim
