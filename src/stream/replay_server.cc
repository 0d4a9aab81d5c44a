// SPDX-License-Identifier: Apache-2.0
#include "src/stream/replay_server.h"

#include <algorithm>
#include <utility>

namespace kvcast::stream {
namespace {

// Requests read before clients are served again.
constexpr int kRequestsPerTurn = 64;

const Payload& EmptyPayload() {
  static const Payload empty = std::make_shared<const std::vector<uint8_t>>();
  return empty;
}

Frame AsFrame(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

ReplayServer::ReplayServer(Socket router, std::shared_ptr<Waker> waker, std::string topic,
                           ReplayLayout layout, const ReplayRing& ring, PublisherState* state)
    : router_(std::move(router)),
      waker_(std::move(waker)),
      topic_(std::move(topic)),
      layout_(layout),
      responder_(ring, state),
      thread_([this] { Run(); }) {}

ReplayServer::~ReplayServer() {
  stopping_ = true;
  waker_->Wake();
  thread_.join();
}

void ReplayServer::Run() {
  while (!stopping_) {
    WaitForWork();
    ReceiveRequests();
    ServeClients();
  }
}

void ReplayServer::WaitForWork() {
  const bool busy =
      std::any_of(clients_.begin(), clients_.end(), [](const Client& c) { return c.runnable(); });
  zmq_pollitem_t items[] = {{router_.get(), 0, ZMQ_POLLIN, 0},
                            {nullptr, waker_->descriptor(), ZMQ_POLLIN, 0}};
  zmq_poll(items, 2, busy ? 0 : -1);
  if (items[1].revents == 0) return;
  waker_->Drain();
  for (Client& client : clients_) client.paused = false;
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
    client.requests.push_back(responder_.Begin(start));
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
  clients_.push_back({name, std::make_shared<ReplayCredit>(waker_), {}, false});
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
  size_t turns = clients_.size();
  for (auto client = clients_.begin(); turns > 0; --turns) {
    const auto current = client++;
    if (!current->runnable()) continue;
    if (ServeTurn(*current) == Turn::kGone) {
      Drop(current);
    } else if (!current->paused) {
      clients_.splice(clients_.end(), clients_, current);
    }
  }
}

ReplayServer::Turn ReplayServer::ServeTurn(Client& client) {
  Answer& answer = client.requests.front();
  slice_.clear();
  responder_.Read(answer, kTurnBatches, slice_);
  for (const RingEntry& entry : slice_) {
    if (!HasCredit(client)) return Turn::kServed;
    if (SendBatch(client, entry) != SendResult::kSent) return Turn::kGone;
    responder_.Sent(answer, entry);
  }
  if (!slice_.empty()) return Turn::kServed;
  if (!HasCredit(client)) return Turn::kServed;
  if (SendEnd(client, answer) != SendResult::kSent) return Turn::kGone;
  client.requests.pop_front();
  return Turn::kServed;
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
