// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/service/hostile_load.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>
#include <zmq.hpp>

#include "apps/bench/service/event_load.h"
#include "apps/support/steady_now.h"
#include "kvcast/wire/wire.h"
#include "src/stream/net/frames.h"

namespace kvcast::tools {
namespace {

using Payload = std::vector<uint8_t>;

// The end of the host names that no name server answers.
constexpr const char* kUnansweredDomain = ".unanswered.test";

// Replaces the address by a host name. Each port has a different host name.
std::string WithUnansweredName(const std::string& endpoint) {
  const std::string port = endpoint.substr(endpoint.rfind(':') + 1);
  return "tcp://engine-" + port + kUnansweredDomain + ":" + port;
}

class HostileSource {
 public:
  HostileSource(zmq::context_t& context, const Attack& attack)
      : attack_(attack),
        live_(context, zmq::socket_type::pub),
        replay_(context, zmq::socket_type::router) {
    // With this option, a full queue refuses the batch. Otherwise libzmq would drop the batch, and
    // the attack would be smaller.
    live_.set(zmq::sockopt::xpub_nodrop, true);
    live_.set(zmq::sockopt::sndhwm, 16);
    live_.set(zmq::sockopt::linger, 0);
    replay_.set(zmq::sockopt::linger, 0);
    live_.bind("tcp://127.0.0.1:*");
    replay_.bind("tcp://127.0.0.1:*");
  }

  LoadEndpoints endpoints() const {
    LoadEndpoints endpoints;
    std::string live = live_.get(zmq::sockopt::last_endpoint);
    if (attack_.unanswered_names) live = WithUnansweredName(live);
    live.copy(endpoints.endpoint.data(), 63);
    if (attack_.slow_replay) {
      replay_.get(zmq::sockopt::last_endpoint).copy(endpoints.replay.data(), 63);
    }
    return endpoints;
  }

  // False: the router does not take a batch now.
  bool Send(HostileSent& sent) {
    const Payload& payload = Next();
    const stream::SeqFrame seq = stream::EncodeSeq(next_seq_);
    const auto flags = zmq::send_flags::dontwait | zmq::send_flags::sndmore;
    if (!live_.send(zmq::buffer("", 0), flags)) return false;
    live_.send(zmq::buffer(seq), flags);
    live_.send(zmq::buffer(payload), zmq::send_flags::dontwait);
    ++round_;
    next_seq_ += attack_.slow_replay ? 2 : 1;
    ++sent.batches;
    sent.bytes += payload.size();
    return true;
  }

  // Answers replay requests with one frame per second. The frame is not a valid reply.
  void AnswerUselessly() {
    zmq::message_t part;
    while (replay_.recv(part, zmq::recv_flags::dontwait)) {
      if (client_.empty()) client_ = part.to_string();
      while (part.more() && replay_.recv(part, zmq::recv_flags::dontwait)) {
      }
    }
    if (client_.empty() || SteadyNow() - answered_at_ < 1) return;
    answered_at_ = SteadyNow();
    replay_.send(zmq::buffer(client_), zmq::send_flags::dontwait | zmq::send_flags::sndmore);
    replay_.send(zmq::buffer("useless", 7), zmq::send_flags::dontwait);
  }

 private:
  const Payload& Next() {
    if (round_ > attack_.prepared && attack_.constant) return payload_;
    if (made_ == round_ + 1) return payload_;
    payload_.clear();
    // EncodeBatch cannot fail, because the attacks consist of valid events.
    (void)EncodeBatch(attack_.batch(round_), Dialect::kKvcast1, payload_);
    made_ = round_ + 1;
    return payload_;
  }

  const Attack& attack_;
  zmq::socket_t live_;
  zmq::socket_t replay_;
  uint64_t round_ = 0;
  uint64_t next_seq_ = 0;
  uint64_t made_ = 0;  // the number of the round of payload_, plus 1; 0: no payload
  Payload payload_;
  std::string client_;
  double answered_at_ = 0;
};

}  // namespace

int SendHostile(const Attack& attack, const PipeEnd& in, const PipeEnd& out) {
  zmq::context_t context;
  std::vector<std::unique_ptr<HostileSource>> sources;
  for (int i = 0; i < attack.sources; ++i) {
    sources.push_back(std::make_unique<HostileSource>(context, attack));
    if (!out.Put(sources.back()->endpoints())) return 1;
  }
  char byte = 0;
  if (!in.Get(byte, kPipeTimeoutMs)) return 1;
  HostileSent sent;
  while (!in.Ready()) {
    bool idle = true;
    for (const auto& source : sources) {
      if (attack.slow_replay) source->AnswerUselessly();
      if (!attack.unanswered_names && source->Send(sent)) idle = false;
    }
    if (idle || attack.slow_replay) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (!in.Get(byte, kPipeTimeoutMs) || !out.Put(sent)) return 1;
  in.Get(byte, kPipeTimeoutMs);
  return 0;
}

}  // namespace kvcast::tools
