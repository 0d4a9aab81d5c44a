// The time of newcomers: their connections are accepted, and their sockets are read, in turns.
// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <utility>

#include "src/base/clock.h"
#include "src/http/server_impl.h"

namespace kvcast {
namespace {

constexpr auto kNewcomerPeriod = std::chrono::microseconds(500);

}  // namespace

void HttpServer::Impl::AwaitNewcomers() {
  newcomers_.ready.AsyncWait([this] {
    newcomers_.queue.SetToFind(true);
    if (!newcomers_.timer_runs) ServeNewcomers();
  });
}

void HttpServer::Impl::FindNewcomers() {
  const int64_t begin_us = SteadyUs();
  const bool more = newcomers_.ready.Take([this](uint64_t id) {
    const auto found = connections_.find(id);
    if (found != connections_.end()) QueueNewcomer(found->second);
  });
  newcomers_.queue.SetToFind(more);
  if (!more) AwaitNewcomers();
  newcomers_.queue.Spend(SteadyUs() - begin_us);
}

void HttpServer::Impl::QueueNewcomer(Shared connection) {
  if (connection->phase != Phase::kLingering) {
    // A handshake takes much time. Its client may never send another byte.
    const bool is_short = !connection->stream.needs_handshake() &&
                          connection->stream.ReceivedBytes() <= kShortRequestBytes;
    newcomers_.queue.AddRequest(connection, connection->peer, is_short);
  } else if (const auto last = newcomers_.queue.AddLingering(std::move(connection))) {
    Close(*last);
  }
}

void HttpServer::Impl::ServeNewcomersLater() {
  newcomers_.timer_runs = true;
  newcomers_.timer.expires_after(kNewcomerPeriod);
  newcomers_.timer.async_wait([this](const Error& stopped) {
    newcomers_.timer_runs = false;
    if (!stopped) ServeNewcomers();
  });
}

void HttpServer::Impl::ServeNewcomers() {
  using Work = NewcomerQueue<Shared>::Work;
  newcomers_.queue.BeginSlice(SteadyUs());
  for (;;) {
    switch (newcomers_.queue.Next(SteadyUs())) {
      case Work::kFind:
        FindNewcomers();
        break;
      case Work::kAccept:
        Accept();
        break;
      case Work::kRequest:
        ReadReady(newcomers_.queue.TakeRequest());
        break;
      case Work::kLingering:
        ReadReady(newcomers_.queue.TakeLingering());
        break;
      case Work::kNone:
        if (newcomers_.queue.has_work()) ServeNewcomersLater();
        return;
    }
  }
}

}  // namespace kvcast
