// SPDX-License-Identifier: Apache-2.0
#include "src/stream/replay_server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/base/background.h"

namespace kvcast::stream {
namespace {

// Requests read before clients are served again.
constexpr int kRequestsPerTurn = 64;
// Longer start frames can only be numbers.
constexpr size_t kMaxStartBytes = 64;
// What a reply costs beside its payload.
constexpr double kReplyBytes = 64;

int64_t SteadyUs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

const Payload& EmptyPayload() {
  static const Payload empty = std::make_shared<const std::vector<uint8_t>>();
  return empty;
}

Frame AsFrame(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

ReplayServer::ReplayServer(Socket router, std::shared_ptr<Waker> waker, std::string topic,
                           ReplayLayout layout, ReplayRing& ring, PublisherState* state,
                           const ReplayRate& rate)
    : router_(std::move(router)),
      waker_(std::move(waker)),
      topic_(std::move(topic)),
      layout_(layout),
      rate_(rate),
      responder_(ring, state),
      thread_([this] { Run(); }) {}

ReplayServer::~ReplayServer() {
  stopping_ = true;
  waker_->Wake();
  thread_.join();
}

void ReplayServer::Run() {
  RunInBackground();
  while (!stopping_) {
    WaitForWork();
    ReceiveRequests();
    ServeClients();
  }
}

void ReplayServer::WaitForWork() {
  zmq_pollitem_t items[] = {{router_.get(), 0, ZMQ_POLLIN, 0},
                            {nullptr, waker_->descriptor(), ZMQ_POLLIN, 0}};
  zmq_poll(items, 2, WaitMs());
  if (items[1].revents == 0) return;
  waker_->Drain();
  for (Client& client : clients_) client.paused = false;
}

// Until a client can be served; -1: until somebody reads or asks.
int64_t ReplayServer::WaitMs() const {
  const int64_t now_us = SteadyUs();
  int64_t wait_ms = -1;
  for (const Client& client : clients_) {
    if (!client.waiting()) continue;
    const int64_t ms = client.runnable(now_us) ? 0 : (client.ready_us - now_us) / 1000 + 1;
    wait_ms = wait_ms < 0 ? ms : std::min(wait_ms, ms);
  }
  return wait_ms;
}

void ReplayServer::ReceiveRequests() {
  for (int i = 0; i < kRequestsPerTurn; ++i) {
    if (router_.Receive(message_) == RecvResult::kNone) return;
    const std::optional<Frame> start = ParseReplayRequest(message_.frames());
    if (start) {
      AddRequest(message_.frames()[0], *start);
    } else {
      ++counters_.rejects;
    }
  }
}

void ReplayServer::AddRequest(Frame identity, Frame start) {
  ++counters_.requests;
  Client& client = FindOrAddClient(identity);
  if (client.requests.size() < kMaxRequestsPerClient) {
    // Snapshots are large, so an answer is made when its turn has come.
    const SeqFrame number = EncodeSeq(ParseStart(start));
    if (start.size() > kMaxStartBytes) start = number;
    client.requests.emplace_back(start.begin(), start.end());
  } else {
    ++counters_.dropped;
  }
}

ReplayServer::Client& ReplayServer::FindOrAddClient(Frame identity) {
  const std::string name(identity.begin(), identity.end());
  for (Client& client : clients_) {
    if (client.identity == name) return client;
  }
  if (clients_.size() == kMaxClients) MakeRoom();
  clients_.push_back({name, std::make_shared<ReplayCredit>(waker_),
                      TokenBucket(rate_.requests, ReplayRate::kRequestBurstS),
                      TokenBucket(rate_.bytes, ReplayRate::kByteBurstS)});
  return clients_.back();
}

void ReplayServer::MakeRoom() {
  auto idle = std::find_if(clients_.begin(), clients_.end(),
                           [](const Client& c) { return c.requests.empty(); });
  Drop(idle != clients_.end() ? idle : clients_.begin());
}

void ReplayServer::Drop(Clients::iterator client) {
  counters_.dropped += client->requests.size();
  clients_.erase(client);
}

void ReplayServer::ServeClients() {
  // Served clients move to the back, so the count is taken first.
  const int64_t now_us = SteadyUs();
  size_t turns = clients_.size();
  for (auto client = clients_.begin(); turns > 0; --turns) {
    const auto current = client++;
    if (!current->runnable(now_us)) continue;
    if (ServeTurn(*current, now_us) == Turn::kGone) {
      Drop(current);
    } else if (!current->paused) {
      clients_.splice(clients_.end(), clients_, current);
    }
  }
}

ReplayServer::Turn ReplayServer::ServeTurn(Client& client, int64_t now_us) {
  if (!client.answer) {
    if (!MayGoOn(client.request_rate, client, now_us)) return Turn::kServed;
    client.request_rate.Spend(1);
    client.answer = responder_.Begin(client.requests.front());
  }
  Answer& answer = *client.answer;
  slice_.clear();
  responder_.Read(answer, kTurnBatches, slice_);
  for (const RingEntry& entry : slice_) {
    if (!MayGoOn(client.byte_rate, client, now_us) || !HasCredit(client)) return Turn::kServed;
    client.byte_rate.Spend(static_cast<double>(entry.payload->size()) + kReplyBytes);
    if (SendBatch(client, entry) != SendResult::kSent) return Turn::kGone;
    responder_.Sent(answer, entry);
  }
  if (!slice_.empty()) return Turn::kServed;
  if (!HasCredit(client)) return Turn::kServed;
  if (SendEnd(client, answer) != SendResult::kSent) return Turn::kGone;
  client.requests.pop_front();
  client.answer.reset();
  return Turn::kServed;
}

bool ReplayServer::MayGoOn(TokenBucket& rate, Client& client, int64_t now_us) {
  client.ready_us = rate.ReadyAt(now_us);
  if (client.ready_us <= now_us) return true;
  ++counters_.delays;
  return false;
}

bool ReplayServer::HasCredit(Client& client) {
  if (client.credit->available()) return true;
  client.paused = client.credit->PauseUntilHalf();
  return !client.paused;
}

SendResult ReplayServer::SendBatch(Client& client, const RingEntry& entry) {
  const SendResult result = SendReply(client, AsFrame(topic_), entry.seq, entry.payload);
  if (result == SendResult::kSent) ++counters_.batches;
  return result;
}

SendResult ReplayServer::SendEnd(Client& client, const Answer& answer) {
  Payload payload = responder_.EndPayload(answer);
  return SendReply(client, {}, kEndSeq, payload ? std::move(payload) : EmptyPayload());
}

SendResult ReplayServer::SendReply(Client& client, Frame topic, uint64_t seq, Payload payload) {
  // Only the identity frame can fail; the rest of the message then has its route.
  const SendResult routed = router_.Send(AsFrame(client.identity), /*more=*/true);
  if (routed != SendResult::kSent) return routed;
  std::shared_ptr<void> charge = ReplayCredit::Charge(client.credit, payload->size());
  router_.Send({}, /*more=*/true);
  if (layout_ == ReplayLayout::kTopicSeqPayload) router_.Send(topic, /*more=*/true);
  router_.Send(EncodeSeq(seq), /*more=*/true);
  return router_.SendShared(std::move(payload), std::move(charge), /*more=*/false);
}

}  // namespace kvcast::stream
