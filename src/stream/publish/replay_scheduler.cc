// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/replay_scheduler.h"

#include <algorithm>
#include <utility>

namespace kvcast::stream {
namespace {

// A longer start frame is always a number, because the other requests are shorter.
constexpr size_t kMaxStartBytes = 64;
// Bytes that each reply takes from the byte rate in addition to its payload.
constexpr double kReplyBytes = 64;
constexpr int64_t kSnapshotRetryUs = 10'000;

const Payload& EmptyPayload() {
  static const Payload empty = std::make_shared<const std::vector<uint8_t>>();
  return empty;
}

}  // namespace

ReplayScheduler::ReplayScheduler(const ReplayLimits& limits, ReplayRing& ring,
                                 PublisherState* state, ReplyChannel& channel,
                                 std::function<void()> wake)
    : limits_(limits), channel_(channel), wake_(std::move(wake)), responder_(ring, state) {}

void ReplayScheduler::AddRequest(Frame client, Frame start) {
  ++counters_.requests;
  Client& asking = FindOrAddClient(client);
  if (asking.requests.size() == kMaxRequestsPerClient) {
    ++counters_.dropped;
    return;
  }
  // Snapshots are large, so an answer is created only when the request is served.
  const SeqFrame number = EncodeSeq(ParseStart(start));
  if (start.size() > kMaxStartBytes) start = number;
  asking.requests.push_back({{start.begin(), start.end()}, responder_.arrivals()});
  responder_.NoteArrival();
}

ReplayScheduler::Client& ReplayScheduler::FindOrAddClient(Frame identity) {
  const std::string name(identity.begin(), identity.end());
  for (Client& client : clients_) {
    if (client.identity == name) return client;
  }
  if (clients_.size() == kMaxClients) MakeRoom();
  clients_.push_back({name, std::make_shared<ReplayCredit>(limits_.credit, wake_),
                      TokenBucket(limits_.rate.requests, ReplayRate::kRequestBurstS),
                      TokenBucket(limits_.rate.bytes, ReplayRate::kByteBurstS)});
  return clients_.back();
}

void ReplayScheduler::MakeRoom() {
  auto idle = std::find_if(clients_.begin(), clients_.end(),
                           [](const Client& c) { return c.requests.empty(); });
  Drop(idle != clients_.end() ? idle : clients_.begin());
}

void ReplayScheduler::Drop(Clients::iterator client) {
  counters_.dropped += client->requests.size();
  clients_.erase(client);
}

void ReplayScheduler::Resume() {
  for (Client& client : clients_) client.paused = false;
}

int64_t ReplayScheduler::WaitMs(int64_t now_us) const {
  for (const Held& held : held_) {
    if (!held.written_us && !held.snapshot.expired()) return 0;
  }
  int64_t wait_ms = -1;
  for (const Client& client : clients_) {
    if (!client.waiting()) continue;
    const int64_t ms = client.runnable(now_us) ? 0 : (client.ready_us - now_us) / 1000 + 1;
    wait_ms = wait_ms < 0 ? ms : std::min(wait_ms, ms);
  }
  return wait_ms;
}

void ReplayScheduler::Serve(int64_t now_us) {
  snapshot_made_ = false;
  WriteSnapshots(now_us);
  if (std::exchange(snapshot_waits_, false)) DropSlowReaders(now_us);
  ServeClients(/*status=*/true, now_us);
  ServeClients(/*status=*/false, now_us);
  const bool wanted = std::ranges::any_of(
      clients_, [](const Client& client) { return !client.requests.empty() && !client.answer; });
  if (!wanted) responder_.ForgetSnapshot();
}

void ReplayScheduler::WriteSnapshots(int64_t now_us) {
  for (Held& held : held_) {
    if (held.written_us) continue;
    const std::shared_ptr<StateSnapshot> snapshot = held.snapshot.lock();
    if (!snapshot) continue;
    if (!snapshot->Write()) held.written_us = now_us;
    return;
  }
}

void ReplayScheduler::DropSlowReaders(int64_t now_us) {
  std::erase_if(held_, [](const Held& held) { return held.snapshot.expired(); });
  if (held_.size() < kMaxSnapshots || !held_.front().written_us) return;
  if (now_us - *held_.front().written_us < kSnapshotHoldUs) return;
  responder_.ForgetSnapshot();
  const auto oldest = held_.front().snapshot.lock();
  for (auto client = clients_.begin(); client != clients_.end();) {
    const auto current = client++;
    if (current->answer && current->answer->snapshot == oldest) Drop(current);
  }
}

// `status` true: serves the requests for a status. False: serves all other requests.
void ReplayScheduler::ServeClients(bool status, int64_t now_us) {
  // Served clients move to the back of the list, so the number of clients is read before the loop.
  size_t turns = clients_.size();
  for (auto client = clients_.begin(); turns > 0; --turns) {
    const auto current = client++;
    if (!current->runnable(now_us)) continue;
    if (status != (RequestKindOf(current->requests.front().start) == RequestKind::kStatus))
      continue;
    if (ServeTurn(*current, now_us) == Turn::kGone) {
      Drop(current);
    } else if (!current->paused) {
      clients_.splice(clients_.end(), clients_, current);
    }
  }
}

ReplayScheduler::Turn ReplayScheduler::ServeTurn(Client& client, int64_t now_us) {
  if (!client.answer) {
    if (!MayGoOn(client.request_rate, client, now_us)) return Turn::kServed;
    const Request& request = client.requests.front();
    const bool makes = responder_.MakesSnapshot(request.start, request.arrival);
    if (makes && !MayMakeSnapshot(client, now_us)) return Turn::kServed;
    client.request_rate.Spend(1);
    client.answer = responder_.Begin(request.start, request.arrival);
    if (makes) NoteSnapshot(*client.answer);
  }
  Answer& answer = *client.answer;
  slice_.clear();
  responder_.Read(answer, limits_.turn_replies, slice_);
  for (const RingEntry& entry : slice_) {
    if (!MayGoOn(client.byte_rate, client, now_us) || !HasCredit(client)) return Turn::kServed;
    client.byte_rate.Spend(static_cast<double>(entry.payload->size()) + kReplyBytes);
    if (!Send(client, entry.seq, entry.payload)) return Turn::kGone;
    ++counters_.batches;
    responder_.Sent(answer, entry);
  }
  if (!slice_.empty() || (answer.snapshot && answer.snapshot->writer)) return Turn::kServed;
  if (!HasCredit(client)) return Turn::kServed;
  Payload end = responder_.EndPayload(answer);
  if (!end) end = EmptyPayload();
  if (!Send(client, kEndSeq, std::move(end))) return Turn::kGone;
  client.requests.pop_front();
  client.answer.reset();
  return Turn::kServed;
}

bool ReplayScheduler::MayMakeSnapshot(Client& client, int64_t now_us) {
  if (snapshot_made_) return false;
  responder_.ForgetSnapshot();
  std::erase_if(held_, [](const Held& held) { return held.snapshot.expired(); });
  if (held_.size() < kMaxSnapshots) return true;
  snapshot_waits_ = true;
  client.ready_us = now_us + kSnapshotRetryUs;
  return false;
}

void ReplayScheduler::NoteSnapshot(const Answer& answer) {
  snapshot_made_ = true;
  held_.push_back({answer.snapshot, std::nullopt});
  counters_.snapshots = responder_.snapshots();
}

bool ReplayScheduler::MayGoOn(TokenBucket& rate, Client& client, int64_t now_us) {
  client.ready_us = rate.ReadyAt(now_us);
  if (client.ready_us <= now_us) return true;
  ++counters_.delays;
  return false;
}

bool ReplayScheduler::HasCredit(Client& client) {
  if (client.credit->available()) return true;
  client.paused = client.credit->PauseUntilHalf();
  return !client.paused;
}

bool ReplayScheduler::Send(Client& client, uint64_t seq, Payload payload) {
  std::shared_ptr<void> charge = ReplayCredit::Charge(client.credit, payload->size());
  return channel_.Send(client.identity, seq, std::move(payload), std::move(charge));
}

}  // namespace kvcast::stream
