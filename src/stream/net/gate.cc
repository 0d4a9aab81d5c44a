// SPDX-License-Identifier: Apache-2.0
#include "src/stream/net/gate.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/base/batch_scheduling.h"
#include "src/base/clock.h"

namespace kvcast::stream {
namespace {

constexpr char kZapEndpoint[] = "inproc://zeromq.zap.01";
constexpr size_t kKeyBytes = 32;
constexpr int64_t kWakeMs = 5;  // interval between wakes until the owner has called HandleWake
// A connection without a key holds a file descriptor, so its handshake has a short time limit.
constexpr int kHandshakeMs = 5000;
constexpr int kFailures = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                          ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

// The frames of a ZAP request (RFC 27).
enum ZapFrame : size_t { kVersion, kRequestId, kDomain, kAddress, kIdentity, kMechanism, kKey };
constexpr size_t kZapFrames = 7;

std::string_view TextOf(Frame frame) {
  return {reinterpret_cast<const char*>(frame.data()), frame.size()};
}

Frame FrameOf(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace

Guard::Guard(std::shared_ptr<Context> context, std::shared_ptr<Gate> gate, Config config,
             Socket monitor)
    : context_(std::move(context)),
      gate_(std::move(gate)),
      config_(std::move(config)),
      monitor_(std::move(monitor)) {}

Result<std::unique_ptr<Guard>> Guard::Create(const std::shared_ptr<Context>& context,
                                             Socket& socket, Config config) {
  if (Status status = CheckCurveKey(config.server.keys.secret_key); !status.ok()) return status;
  if (config.server.clients == nullptr) {
    return Status(StatusCode::kInvalidArgument, "CurveServer::clients is not set");
  }
  const int events = kFailures | (config.limit != nullptr ? ReceiveLimit::kEvents : 0);
  Result<Socket> monitor = socket.Monitor(events);
  if (!monitor.ok()) return monitor.status();
  Context::GateSlot& slot = context->gate_slot();
  MutexLock lock(slot.mutex);
  Result<std::shared_ptr<Gate>> gate = Gate::Of(context, slot);
  if (!gate.ok()) {
    socket.Close();  // must be closed before its monitor
    return gate.status();
  }
  const std::string domain = (*gate)->NextDomain();
  socket.SetOption(ZMQ_HANDSHAKE_IVL, kHandshakeMs);
  socket.Secure(config.server.keys, domain);
  std::unique_ptr<Guard> guard(
      new Guard(context, *gate, std::move(config), std::move(monitor).value()));
  Result<Poller::Watch> watch = (*gate)->poller_->Add(guard->monitor_, &(*gate)->ready_);
  guard->commands_ = Descriptor(fcntl(socket.descriptor(), F_DUPFD_CLOEXEC, 0));
  Result<Poller::Watch> commands =
      (*gate)->poller_->AddEdges(guard->commands_.get(), guard->has_commands_.get());
  gate->reset();
  Status failed = watch.ok() ? commands.status() : watch.status();
  if (watch.ok()) guard->watch_ = std::move(watch).value();
  if (commands.ok()) guard->commands_watch_ = std::move(commands).value();
  if (!failed.ok()) {
    socket.Close();
    guard->EndWatches();  // before the gate may end
    guard->gate_.reset();
    return failed;
  }
  guard->gate_->Add(domain, *guard);
  return guard;
}

Guard::~Guard() {
  if (gate_ == nullptr) return;
  gate_->Remove(*this);
  EndWatches();
  MutexLock lock(context_->gate_slot().mutex);
  gate_.reset();
}

void Guard::EndWatches() {
  watch_ = {};
  commands_watch_ = {};
  gate_->Retire(has_commands_);
}

RefusedConnections Guard::refused() const {
  return {no_key_, wrong_server_key_, not_allowed_, broken_};
}

void Guard::Handle(Socket& socket) {
  if (needs_renewal_) Renew(socket);
  // The flag is cleared first: libzmq may add a command at any time.
  if (has_commands_->exchange(false)) socket.ProcessCommands();
}

void Guard::Renew(Socket& socket) {
  if (endpoint_.empty()) endpoint_ = socket.last_endpoint();
  // The flag is cleared first: a client may lose its role during the renewal.
  needs_renewal_ = false;
  if (!socket.Renew(endpoint_, !config_.connects)) needs_renewal_ = true;
}

bool Guard::Allows(std::string_view key) const {
  return std::ranges::any_of(config_.roles,
                             [&](CurveRole role) { return clients().Allows(role, key); });
}

void Guard::OnEvent(const MonitorEvent& event) {
  if ((event.event & kFailures) != 0) return Count(event);
  config_.limit->OnEvent(event);
}

void Guard::Count(const MonitorEvent& event) {
  failed_ = true;
  if (event.event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
    ++not_allowed_;
  } else if (event.value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH) {
    ++no_key_;
    Refuse("", "no_key");
  } else if (event.value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC) {
    ++wrong_server_key_;
    Refuse("", "wrong_server_key");
  } else {
    ++broken_;
    Refuse("", "broken");
  }
}

void Guard::Refuse(std::string_view peer, std::string_view reason) const {
  Notify({.kind = CurveNotice::Kind::kRefused, .socket = {}, .peer = peer, .reason = reason});
}

void Guard::Notify(CurveNotice notice) const {
  if (!config_.server.on_notice) return;
  const bool live = std::ranges::find(config_.roles, CurveRole::kSubscribe) != config_.roles.end();
  notice.socket = live ? "live" : "replay";
  config_.server.on_notice(notice);
}

void Guard::CheckAdmitted() {
  const size_t revoked = std::erase_if(admitted_, [this](const auto& key) { return !Allows(key); });
  if (revoked > 0) {
    Notify({.kind = CurveNotice::Kind::kRevoked,
            .socket = {},
            .peer = {},
            .reason = {},
            .clients = revoked});
  }
  if (revoked > 0 || (config_.connects && failed_)) needs_renewal_ = true;
  failed_ = false;
}

Result<std::shared_ptr<Gate>> Gate::Of(const std::shared_ptr<Context>& context,
                                       Context::GateSlot& slot) {
  std::shared_ptr<Gate> gate = slot.gate.lock();
  if (gate != nullptr) return gate;
  Result<std::shared_ptr<Gate>> started = Start(context);
  if (started.ok()) slot.gate = *started;
  return started;
}

Result<std::shared_ptr<Gate>> Gate::Start(const std::shared_ptr<Context>& context) {
  Result<Socket> zap = Socket::Create(context, ZMQ_REP);
  if (!zap.ok()) return zap.status();
  zap->SetOption(ZMQ_LINGER, 0);
  // Socket::Bind is not used, because it refuses this name.
  if (zmq_bind(zap->get(), kZapEndpoint) != 0) {
    return Status(StatusCode::kUnavailable, "another ZAP handler already runs in this process");
  }
  Result<std::shared_ptr<Waker>> waker = Waker::Create();
  if (!waker.ok()) return waker.status();
  Result<std::unique_ptr<Poller>> poller = Poller::Create();
  if (!poller.ok()) return poller.status();
  std::shared_ptr<Gate> gate(
      new Gate(context, std::move(zap).value(), *waker, std::move(poller).value()));
  Result<Poller::Watch> zap_watch = gate->poller_->Add(gate->zap_, &gate->ready_);
  if (!zap_watch.ok()) return zap_watch.status();
  Result<Poller::Watch> waker_watch = gate->poller_->Add(gate->waker_->descriptor(), &gate->ready_);
  if (!waker_watch.ok()) return waker_watch.status();
  gate->zap_watch_ = std::move(zap_watch).value();
  gate->waker_watch_ = std::move(waker_watch).value();
  gate->thread_ = std::thread([raw = gate.get()] { raw->Run(); });
  return gate;
}

Gate::Gate(std::shared_ptr<Context> context, Socket zap, std::shared_ptr<Waker> waker,
           std::unique_ptr<Poller> poller)
    : context_(std::move(context)),
      zap_(std::move(zap)),
      waker_(std::move(waker)),
      poller_(std::move(poller)) {}

Gate::~Gate() {
  stopping_ = true;
  waker_->Wake();
  if (thread_.joinable()) thread_.join();
  // zmq_unbind releases the name at once. zmq_close releases the name on another thread, some time
  // later.
  zmq_unbind(zap_.get(), kZapEndpoint);
}

std::string Gate::NextDomain() {
  MutexLock lock(mutex_);
  return "kvcast-" + std::to_string(++domains_);
}

void Gate::Add(const std::string& domain, Guard& guard) {
  {
    MutexLock lock(mutex_);
    guards_.emplace(domain, &guard);
  }
  // The thread has not read the events that arrived before Add.
  waker_->Wake();
}

void Gate::Remove(const Guard& guard) {
  MutexLock lock(mutex_);
  std::erase_if(guards_, [&guard](const auto& entry) { return entry.second == &guard; });
}

void Gate::Retire(std::shared_ptr<std::atomic<bool>> flag) {
  MutexLock lock(mutex_);
  retired_.push_back(std::move(flag));
}

// The events that Wait has taken from the system are handled now, so no event of a flag that was
// retired before this call is left.
void Gate::FreeRetired() {
  std::vector<std::shared_ptr<std::atomic<bool>>> retired;
  MutexLock lock(mutex_);
  retired.swap(retired_);
}

void Gate::Run() {
  SetBatchScheduling();
  while (!stopping_) {
    FreeRetired();
    poller_->Wait(ready_ ? 0 : WaitMs());
    if (ready_) {
      ready_ = false;
      waker_->Drain();
      AnswerRequests();
      CountEvents();
    }
    if (SteadyMs() >= refresh_due_ms_) RefreshLists();
    WakeOwners();
  }
}

int64_t Gate::WaitMs() {
  MutexLock lock(mutex_);
  const bool waking =
      std::ranges::any_of(guards_, [](const auto& entry) { return entry.second->needs_owner(); });
  return waking ? kWakeMs : std::max<int64_t>(refresh_due_ms_ - SteadyMs(), 0);
}

void Gate::AnswerRequests() {
  for (Multipart request; zap_.Receive(request) == RecvResult::kMessage;) {
    Answer(request.frames());
  }
}

void Gate::Answer(Frames request) {
  std::string key;
  {
    MutexLock lock(mutex_);
    key = AdmittedKey(request);
    const auto guard =
        guards_.find(request.size() > kDomain ? TextOf(request[kDomain]) : std::string_view());
    if (key.empty() && guard != guards_.end()) {
      guard->second->Refuse(request.size() > kAddress ? TextOf(request[kAddress]) : "",
                            "not_allowed");
    }
  }
  zap_.Send(FrameOf("1.0"), /*more=*/true);
  zap_.Send(request.size() > kRequestId ? request[kRequestId] : Frame(), /*more=*/true);
  zap_.Send(FrameOf(key.empty() ? "400" : "200"), /*more=*/true);
  zap_.Send(FrameOf(key.empty() ? "not allowed" : "OK"), /*more=*/true);
  zap_.Send(FrameOf(key), /*more=*/true);  // the user id
  zap_.Send(Frame(), /*more=*/false);      // metadata
}

// Empty: the client is refused.
std::string Gate::AdmittedKey(Frames request) {
  if (request.size() != kZapFrames || TextOf(request[kMechanism]) != "CURVE" ||
      request[kKey].size() != kKeyBytes) {
    return {};
  }
  const auto guard = guards_.find(TextOf(request[kDomain]));
  std::array<char, 41> key;
  if (guard == guards_.end() || !zmq_z85_encode(key.data(), request[kKey].data(), kKeyBytes)) {
    return {};
  }
  if (!guard->second->Allows(key.data())) return {};
  guard->second->admitted_.emplace(key.data());
  return key.data();
}

void Gate::CountEvents() {
  MutexLock lock(mutex_);
  for (const auto& [domain, guard] : guards_) {
    while (const auto event = ReceiveMonitorEvent(guard->monitor_)) guard->OnEvent(*event);
  }
}

void Gate::RefreshLists() {
  refresh_due_ms_ = SteadyMs() + AccessList::kRefreshMs;
  MutexLock lock(mutex_);
  std::set<AccessList*> lists;
  for (const auto& [domain, guard] : guards_) {
    AccessList* const list = guard->config_.server.clients.get();
    if (!lists.insert(list).second) continue;
    const Status read = list->Refresh();
    if (read.ok()) continue;
    guard->Notify({.kind = CurveNotice::Kind::kListFailed,
                   .socket = {},
                   .peer = {},
                   .reason = read.message()});
  }
  for (const auto& [domain, guard] : guards_) guard->CheckAdmitted();
}

void Gate::WakeOwners() {
  MutexLock lock(mutex_);
  for (const auto& [domain, guard] : guards_) {
    if (guard->needs_owner()) guard->config_.wake();
  }
}

}  // namespace kvcast::stream
