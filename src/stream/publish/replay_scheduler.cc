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
  clients_.push_back({name, TakeBudget(name)});
  return clients_.back();
}

ReplayScheduler::Budget ReplayScheduler::TakeBudget(const std::string& identity) {
  if (auto dropped = dropped_.extract(identity)) return std::move(dropped.mapped());
  return {std::make_shared<ReplayCredit>(limits_.credit, wake_),
          TokenBucket(limits_.rate.requests, ReplayRate::kRequestBurstS),
          TokenBucket(limits_.rate.bytes, ReplayRate::kByteBurstS)};
}

void ReplayScheduler::ForgetBudgets(int64_t now_us) {
  if (dropped_.size() < forget_at_) return;
  std::erase_if(dropped_, [now_us](const auto& each) { return each.second.IsUnused(now_us); });
  // A pass visits all budgets. Before a pass over n budgets, at least n / 2 clients were dropped
  // since the previous pass.
  forget_at_ = 2 * dropped_.size() + kMaxClients;
}

void ReplayScheduler::MakeRoom() {
  auto idle = std::find_if(clients_.begin(), clients_.end(),
                           [](const Client& c) { return c.requests.empty(); });
  Drop(idle != clients_.end() ? idle : clients_.begin());
}

void ReplayScheduler::Drop(Clients::iterator client) {
  counters_.dropped += client->requests.size();
  dropped_.emplace(client->identity, std::move(client->budget));
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
    const int64_t ready_us = ReadyUs(client);
    const int64_t ms = ready_us <= now_us ? 0 : (ready_us - now_us) / 1000 + 1;
    wait_ms = wait_ms < 0 ? ms : std::min(wait_ms, ms);
  }
  return wait_ms;
}

int64_t ReplayScheduler::ReadyUs(const Client& client) const {
  if (!snapshot_waits_ || !NeedsSnapshot(client)) return client.ready_us;
  // A snapshot is freed only in Serve and in AddRequest. If its readers are slow, Serve frees the
  // oldest snapshot kSnapshotHoldUs after the snapshot was written.
  for (const Held& held : held_) {
    if (held.snapshot.expired()) return client.ready_us;
  }
  return std::max(client.ready_us, held_.front().written_us.value_or(0) + kSnapshotHoldUs);
}

void ReplayScheduler::Serve(int64_t now_us) {
  ForgetBudgets(now_us);
  WriteSnapshots(now_us);
  ServeClients(/*status=*/true, now_us);
  MakeSnapshot(now_us);
  ServeClients(/*status=*/false, now_us);
  // A paused client may never read, so the snapshot is not kept for it.
  const bool wanted = std::ranges::any_of(
      clients_, [](const Client& client) { return client.waiting() && !client.answer; });
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
  if (HasRoomForSnapshot() || !held_.front().written_us) return;
  if (now_us - *held_.front().written_us < kSnapshotHoldUs) return;
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
    if (NeedsSnapshot(client) || !MayBegin(client, now_us)) return Turn::kServed;
    Begin(client);
  }
  Answer& answer = *client.answer;
  slice_.clear();
  responder_.Read(answer, limits_.turn_replies, slice_);
  for (const RingEntry& entry : slice_) {
    TokenBucket& rate = client.budget.byte_rate;
    if (!MayGoOn(rate, client, now_us) || !HasCredit(client)) return Turn::kServed;
    rate.Spend(static_cast<double>(entry.payload->size()) + kReplyBytes);
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
  client.answered = responder_.arrivals();
  return Turn::kServed;
}

// A client that does not read gets no answer, so that it holds no snapshot.
bool ReplayScheduler::MayBegin(Client& client, int64_t now_us) {
  return MayGoOn(client.budget.request_rate, client, now_us) && HasCredit(client);
}

void ReplayScheduler::Begin(Client& client) {
  const Request& request = client.requests.front();
  client.budget.request_rate.Spend(1);
  client.answer = responder_.Begin(request.start, request.arrival);
}

bool ReplayScheduler::NeedsSnapshot(const Client& client) const {
  if (client.answer) return false;
  const Request& request = client.requests.front();
  return responder_.MakesSnapshot(request.start, request.arrival);
}

ReplayScheduler::Client* ReplayScheduler::FirstInQueue(int64_t now_us) {
  Client* first = nullptr;
  for (Client& client : clients_) {
    if (!client.runnable(now_us) || !NeedsSnapshot(client)) continue;
    if (first == nullptr || client.place() < first->place()) first = &client;
  }
  return first;
}

void ReplayScheduler::MakeSnapshot(int64_t now_us) {
  snapshot_waits_ = false;
  Client* first = FirstInQueue(now_us);
  // A client that may not begin is not runnable any more.
  while (first != nullptr && !MayBegin(*first, now_us)) first = FirstInQueue(now_us);
  if (first == nullptr) return;
  responder_.ForgetSnapshot();
  DropSlowReaders(now_us);
  snapshot_waits_ = !HasRoomForSnapshot();
  if (snapshot_waits_) return;
  Begin(*first);
  held_.push_back({first->answer->snapshot, std::nullopt});
  counters_.snapshots = responder_.snapshots();
}

bool ReplayScheduler::HasRoomForSnapshot() {
  std::erase_if(held_, [](const Held& held) { return held.snapshot.expired(); });
  return held_.size() < kMaxSnapshots;
}

bool ReplayScheduler::MayGoOn(TokenBucket& rate, Client& client, int64_t now_us) {
  client.ready_us = rate.ReadyAt(now_us);
  if (client.ready_us <= now_us) return true;
  ++counters_.delays;
  return false;
}

bool ReplayScheduler::HasCredit(Client& client) {
  ReplayCredit& credit = *client.budget.credit;
  if (credit.available()) return true;
  client.paused = credit.PauseUntilHalf();
  return !client.paused;
}

bool ReplayScheduler::Send(Client& client, uint64_t seq, Payload payload) {
  std::shared_ptr<void> charge = ReplayCredit::Charge(client.budget.credit, payload->size());
  return channel_.Send(client.identity, seq, std::move(payload), std::move(charge));
}

}  // namespace kvcast::stream
