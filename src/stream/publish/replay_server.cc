// SPDX-License-Identifier: Apache-2.0
#include "src/stream/publish/replay_server.h"

#include <optional>
#include <utility>

#include "src/base/batch_scheduling.h"

namespace kvcast::stream {
namespace {

// Maximum number of requests that are read before clients are served again.
constexpr int kRequestsPerTurn = 64;
// No batch has this number, so the answer to a replay from this number is only END.
constexpr uint64_t kBehindAllBatches = UINT64_MAX;

Frame AsFrame(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

ReplayServer::ReplayServer(Socket router, std::shared_ptr<Waker> waker,
                           const ReplayServerConfig& config, ReplayRing& ring,
                           PublisherState* state)
    : config_(config),
      router_(std::move(router)),
      waker_(std::move(waker)),
      // Charges may outlive the server, so this function owns a reference to the waker.
      scheduler_({.rate = config.rate, .credit = {}}, ring, state, *this,
                 [held = waker_] { held->Wake(); }),
      thread_([this] { Run(); }) {}

ReplayServer::~ReplayServer() {
  stopping_ = true;
  waker_->Wake();
  thread_.join();
}

void ReplayServer::Run() {
  SetBatchScheduling();
  while (!stopping_) {
    WaitForWork();
    if (config_.guard != nullptr) config_.guard->HandleWake(router_);
    ReceiveRequests();
    scheduler_.Serve(config_.now_us());
  }
}

void ReplayServer::WaitForWork() {
  zmq_pollitem_t items[] = {{router_.get(), 0, ZMQ_POLLIN, 0},
                            {nullptr, waker_->descriptor(), ZMQ_POLLIN, 0}};
  zmq_poll(items, 2, scheduler_.WaitMs(config_.now_us()));
  if (items[1].revents == 0) return;
  waker_->Drain();
  scheduler_.Resume();
}

void ReplayServer::ReceiveRequests() {
  for (int i = 0; i < kRequestsPerTurn; ++i) {
    if (router_.Receive(message_) == RecvResult::kNone) return;
    if (config_.limit != nullptr) config_.limit->NoteMessage(message_.connection());
    if (config_.silent && config_.silent()) continue;
    const std::optional<Frame> start = ParseReplayRequest(message_.frames());
    const Frame client = message_.frames()[0];
    if (!start) {
      scheduler_.CountReject();
    } else if (MayRequest(*start)) {
      scheduler_.AddRequest(client, *start);
    } else {
      // The rate and the credit of the client also limit the answers to denied requests.
      ++denied_;
      scheduler_.AddRequest(client, EncodeSeq(kBehindAllBatches));
    }
  }
}

bool ReplayServer::MayRequest(Frame start) const {
  if (config_.guard == nullptr) return true;
  const AccessList& clients = config_.guard->clients();
  const std::string_view key = message_.user_id();
  const bool replay = clients.Allows(CurveRole::kReplay, key);
  const bool snapshot = clients.Allows(CurveRole::kSnapshot, key);
  switch (RequestKindOf(start)) {
    case RequestKind::kStatus:
      return replay || snapshot;
    case RequestKind::kSnapshot:
      return snapshot;
    case RequestKind::kReplay:
      break;
  }
  return replay;
}

bool ReplayServer::Send(const std::string& client, uint64_t seq, Payload payload,
                        std::shared_ptr<void> charge) {
  // Only the identity frame can fail. If it is accepted, the other frames of the message have a
  // route.
  if (router_.Send(AsFrame(client), /*more=*/true) != SendResult::kSent) return false;
  const Frame topic = seq == kEndSeq ? Frame() : AsFrame(config_.topic);
  router_.Send({}, /*more=*/true);
  if (config_.layout == ReplayLayout::kTopicSeqPayload) router_.Send(topic, /*more=*/true);
  router_.Send(EncodeSeq(seq), /*more=*/true);
  return router_.SendShared(std::move(payload), std::move(charge), /*more=*/false) ==
         SendResult::kSent;
}

}  // namespace kvcast::stream
