// The order of the work for connections. Clients take turns, and newcomers get a share of the time.
// SPDX-License-Identifier: Apache-2.0
#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "src/base/clock.h"
#include "src/http/server_impl.h"

namespace kvcast {
namespace {

// Pause between two slices of the work for newcomers.
constexpr auto kNewcomerPeriod = std::chrono::microseconds(500);
// After this number of turns, other work of the thread can run, for example the work for newcomers.
constexpr int kMostTurns = 8;

}  // namespace

void HttpServer::Impl::AwaitBytes(const Shared& connection) {
  if (std::exchange(connection->awaits, true)) return;
  ReadySockets& ready = connection->newcomer ? newcomers_.ready : turns_.ready;
  if (!ready.Watch(connection->stream.descriptor(), connection->id)) Close(connection);
}

void HttpServer::Impl::ReadLater(const Shared& connection) {
  if (connection->newcomer) {
    QueueNewcomer(connection);
    if (!newcomers_.timer_runs) ServeNewcomers();
  } else {
    turns_.queue.Push(connection->client, {.connection = connection});
    TakeTurnsLater();
  }
}

void HttpServer::Impl::AwaitReady() {
  turns_.ready.AsyncWait([this] {
    turns_.to_find = true;
    if (!turns_.is_posted) TakeTurns();
  });
}

void HttpServer::Impl::FindReady() {
  turns_.to_find = turns_.ready.Take([this](uint64_t id) {
    const Shared connection = ConnectionOf(id);
    if (connection) turns_.queue.Push(connection->client, {.connection = connection});
  });
  if (!turns_.to_find) AwaitReady();
}

void HttpServer::Impl::TakeTurns() {
  for (int i = 0; i < kMostTurns; ++i) {
    if (turns_.to_find) FindReady();
    if (turns_.queue.empty()) break;
    TakeTurn(turns_.queue.Pop());
  }
  if (turns_.to_find || !turns_.queue.empty()) TakeTurnsLater();
}

void HttpServer::Impl::TakeTurn(Turn turn) {
  const bool paced = turn.finished && turn.finished->paced;
  if (turn.has_room) {
    if (turn.connection->stream.awaits_room()) turn.connection->stream.GoOnWriting();
  } else if (!turn.finished) {
    ReadReady(turn.connection);
  } else if (!turn.connection->closed()) {
    OnFinished(turn.connection, std::move(*turn.finished));
  }
  if (paced) taken_.release();
}

void HttpServer::Impl::TakeTurnsLater() {
  if (std::exchange(turns_.is_posted, true)) return;
  boost::asio::post(io_, [this] {
    turns_.is_posted = false;
    TakeTurns();
  });
}

void HttpServer::Impl::AwaitWritable() {
  turns_.full.AsyncWait([this] { FindWritable(); });
}

void HttpServer::Impl::FindWritable() {
  const bool more = turns_.full.Take([this](uint64_t id) {
    const Shared connection = ConnectionOf(id);
    if (!connection) return;
    turns_.queue.Push(connection->client, {.connection = connection, .has_room = true});
    TakeTurnsLater();
  });
  if (!more) return AwaitWritable();
  boost::asio::post(io_, [this] { FindWritable(); });
}

void HttpServer::Impl::AwaitNewcomers() {
  newcomers_.ready.AsyncWait([this] {
    newcomers_.queue.SetToFind(true);
    if (!newcomers_.timer_runs) ServeNewcomers();
  });
}

void HttpServer::Impl::FindNewcomers() {
  const int64_t begin_us = SteadyUs();
  const bool more = newcomers_.ready.Take([this](uint64_t id) {
    if (const Shared connection = ConnectionOf(id)) QueueNewcomer(connection);
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
    newcomers_.queue.AddRequest(connection, connection->client, is_short);
  } else if (const auto to_close = newcomers_.queue.AddLingering(std::move(connection))) {
    Close(*to_close);
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
