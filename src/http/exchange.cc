// Requests and replies of one connection: the server reads a request, routes it, and sends the
// reply.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <limits>
#include <utility>

#include "src/base/check.h"
#include "src/base/clock.h"
#include "src/http/reply_text.h"
#include "src/http/server_impl.h"
#include "src/http/trace_parent.h"

namespace kvcast {
namespace {

constexpr int64_t kLingerMs = 1000;
// Maximum number of bytes of a read of a request, except the first read from a newcomer.
constexpr size_t kPieceBytes = 16 << 10;
// The bound max_held_bytes does not apply to a request that holds at most this number of bytes, so
// that health checks are answered.
constexpr size_t kSmallBytes = 4 << 10;
constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

// Maximum number of bytes of the next read. Bytes after a refusal are only discarded, and each read
// makes the kernel acknowledge bytes, so few large reads are cheaper.
size_t MostBytes(ConnectionPhase phase, bool newcomer) {
  if (phase == ConnectionPhase::kLingering) return std::tuple_size_v<HttpStream::Scratch>;
  return newcomer && phase == ConnectionPhase::kIdle ? kShortRequestBytes : kPieceBytes;
}

const char* MethodName(HttpRoute::Method method) {
  constexpr std::array kNames = {"GET", "POST", "DELETE"};
  return kNames[static_cast<size_t>(method)];
}

// Handlers throw only std::bad_alloc. The exception must not end the process.
HttpReply Handle(const HttpRoute& route, const HttpRequest& request) {
  try {
    return route.handler(request);
  } catch (...) {
    return HttpError(500, "internal error");
  }
}

std::string_view RouteOf(const std::string* path) {
  return path == nullptr ? std::string_view() : *path;
}

// nullopt: the reply cannot be completed. The client must see that the reply is incomplete.
std::optional<std::string> NextPiece(const std::function<std::string()>& next) {
  try {
    return next();
  } catch (...) {
    return std::nullopt;
  }
}

}  // namespace

void HttpServer::Impl::Enter(Connection& connection, Phase phase) {
  const Phase before = std::exchange(connection.phase, phase);
  KV_DCHECK(MayFollow(before, phase));
  if (IsQuiet(before) && !IsQuiet(phase)) clients_.SetBusy(connection.place);
  if (!IsQuiet(before) && IsQuiet(phase)) clients_.SetQuiet(connection.place, connection.id);
  connection.deadline_ms = Deadline(connection);
}

int64_t HttpServer::Impl::Deadline(const Connection& connection) const {
  const auto after = [](int64_t ms) { return SteadyMs() + ms; };
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  switch (connection.phase) {
    case Phase::kHandshake:
    case Phase::kReceiving:
      return after(options_.request_timeout_ms);
    case Phase::kIdle:
      return after(options_.idle_timeout_ms);
    case Phase::kContinuing:
      return after(options_.write_timeout_ms);
    case Phase::kReplying:
      return std::min(after(options_.write_timeout_ms), connection.reply_until_ms);
    case Phase::kLingering:
      return after(kLingerMs);
    case Phase::kHandling:
    case Phase::kClosed:
      break;
  }
  return kNever;
}

void HttpServer::Impl::Read(const Shared& connection) {
  if (connection->reading || connection->ended) return;
  connection->reading = true;
  if (connection->stream.is_secure()) {
    connection->stream.AsyncReadSecure(
        [this, connection](const Error& error, std::string_view bytes) {
          if (connection->closed() || !connection->stream.is_secure()) return;
          connection->reading = false;
          OnRead(connection, error, bytes);
        });
    return;
  }
  AwaitBytes(connection);
}

void HttpServer::Impl::ReadReady(const Shared& connection) {
  connection->awaits = false;
  if (connection->closed()) return;
  const bool newcomer = connection->newcomer;
  const int64_t begin_us = SteadyUs();
  if (!connection->reading && connection->in.size() > 0) {
    Advance(connection);
  } else if (connection->stream.is_secure()) {
    const bool lives = !connection->stream.needs_handshake() || Handshake(connection);
    if (lives && connection->stream.awaits_secure()) connection->stream.ReadSecure();
  } else {
    connection->reading = false;
    Error error;
    const size_t most_bytes = MostBytes(connection->phase, newcomer);
    const std::string_view bytes = connection->stream.ReadReady(most_bytes, error);
    OnRead(connection, error, bytes);
  }
  if (newcomer) newcomers_.queue.Spend(SteadyUs() - begin_us);
}

void HttpServer::Impl::OnRead(const Shared& connection, const Error& error,
                              std::string_view bytes) {
  connection->ended = error.failed();
  if (connection->closing) {
    if (connection->ended && connection->phase == Phase::kLingering) return Close(connection);
    return Read(connection);
  }
  if (connection->ended) return Close(connection);  // an incomplete request gets no answer
  const auto room = connection->in.prepare(bytes.size());
  std::copy(bytes.begin(), bytes.end(), static_cast<char*>(room.data()));
  connection->in.commit(bytes.size());
  Advance(connection);
}

// Reads the next request from the received bytes. If it is incomplete, waits for more bytes.
void HttpServer::Impl::Advance(const Shared& connection) {
  using State = RequestReader::State;
  const State state = connection->reader.Read(connection->in);
  const bool has_begun = connection->reader.has_begun() || state == State::kBad;
  if (connection->phase == Phase::kIdle && has_begun) Enter(*connection, Phase::kReceiving);
  if (connection->in.size() == 0) connection->in.shrink_to_fit();
  CountHeld(*connection);
  if (connection->head.refusal) {
    const HttpReply refusal = *std::exchange(connection->head.refusal, {});
    connection->reader.Drop();
    connection->in = {};
    requests_.Note(connection->head.path, refusal.status);
    return Reply(connection, refusal, false);
  }
  if (state == State::kBad) return Answer(connection, connection->reader.error(), false);
  if (state == State::kBody && connection->head.route == nullptr) {
    return AnswerUnread(connection, NoRoute(*connection));
  }
  if (!FindRoom(connection)) return;
  if (state == State::kComplete) return Dispatch(connection);
  if (!connection->reader.TakeAwaitsContinue()) return Read(connection);
  connection->out += kContinue;
  Send(connection, Phase::kContinuing);
}

void HttpServer::Impl::CountHeld(Connection& connection) {
  using State = RequestReader::State;
  const size_t now = connection.in.size() + connection.reader.held_bytes() + connection.out.size();
  const State state = connection.reader.state();
  // While a reply is being sent, the received bytes belong to the next request. The server does not
  // refuse that request yet.
  const bool unfinished = connection.phase == Phase::kReceiving && now > kSmallBytes &&
                          (state == State::kHead || state == State::kBody);
  unfinished_.erase({connection.held, ~connection.id});
  if (unfinished) unfinished_.emplace(now, ~connection.id);
  counts_.held_bytes += now - connection.held;
  connection.held = now;
}

// Clients that do not read their replies must not make the server hold more bytes, and must not
// make the server refuse the requests of other clients. The connection with the oldest reply is
// closed first, because the clients that read have younger replies.
void HttpServer::Impl::CountReply(Connection& connection) {
  if (connection.out.size() <= kSmallBytes) return;
  unread_.bytes += connection.out.size();
  connection.unread = unread_.ids.insert(unread_.ids.end(), connection.id);
  while (unread_.bytes > options_.max_held_bytes && unread_.ids.size() > 1) {
    Close(Shared(connections_.at(unread_.ids.front())));
    ++counts_.refused_bytes;
  }
}

void HttpServer::Impl::ForgetReply(Connection& connection) {
  if (!connection.unread) return;
  unread_.bytes -= connection.out.size();
  unread_.ids.erase(*std::exchange(connection.unread, std::nullopt));
}

// False: the request of this connection was refused.
bool HttpServer::Impl::FindRoom(const Shared& connection) {
  while (counts_.held_bytes - unread_.bytes > options_.max_held_bytes) {
    Shared largest = connection;
    if (!unfinished_.empty()) largest = connections_.at(~unfinished_.rbegin()->second);
    if (largest->held <= kSmallBytes) return true;
    ++counts_.refused_bytes;
    AnswerUnread(largest, HttpError(503, "too many requests at once"));
    if (largest == connection) return false;
  }
  return true;
}

size_t HttpServer::Impl::OnHead(Connection& connection, const HttpRequest& head) {
  const auto path = routes_.find(head.path);
  connection.head.path = path == routes_.end() ? nullptr : &path->first;
  connection.head.route = FindRoute(head);
  connection.head.head_only = head.method == "HEAD";
  connection.head.refusal = Refusal(head, connection);
  if (connection.head.refusal || connection.head.route == nullptr) return HttpRoute::kSmallBody;
  return connection.head.route->max_body_bytes;
}

std::optional<HttpReply> HttpServer::Impl::Refusal(const HttpRequest& head,
                                                   Connection& connection) const {
  const HttpRoute* const route = connection.head.route;
  const bool changes = head.method != "GET" && head.method != "HEAD";
  const char* const why =
      host_rules_.WhyRefused(head.Header("host"), head.Header("origin"), changes);
  if (why != nullptr) return Refuse(head, connection, 403, why);
  if (!tokens_ || route == nullptr || !route->access) return std::nullopt;
  connection.head.role = tokens_->RoleOf(head.Header("authorization"));
  if (!connection.head.role) {
    HttpReply refusal =
        Refuse(head, connection, 401, "authorization: a valid bearer token is needed");
    refusal.headers.emplace_back("WWW-Authenticate", "Bearer");
    return refusal;
  }
  if (Includes(*connection.head.role, *route->access)) return std::nullopt;
  return Refuse(head, connection, 403,
                "authorization: the role of the token does not allow this request");
}

HttpReply HttpServer::Impl::Refuse(const HttpRequest& head, const Connection& connection,
                                   int status, const char* why) const {
  if (options_.on_answer) {
    options_.on_answer({.peer = connection.peer,
                        .method = head.method,
                        .route = RouteOf(connection.head.path),
                        .status = status,
                        .refused_for = why,
                        .traceparent = TraceParentOf(head)});
  }
  return HttpError(status, why);
}

void HttpServer::Impl::NoteAnswer(const Connection& connection, int status,
                                  std::string_view traceparent) {
  requests_.Note(connection.head.path, status);
  if (!options_.on_answer) return;
  options_.on_answer({.peer = connection.peer,
                      .method = {},
                      .route = RouteOf(connection.head.path),
                      .status = status,
                      .refused_for = {},
                      .traceparent = traceparent});
}

const HttpRoute* HttpServer::Impl::FindRoute(const HttpRequest& request) const {
  const auto path = routes_.find(request.path);
  if (path == routes_.end()) return nullptr;
  const std::string_view asked = request.method;
  const std::string_view method = asked == "HEAD" ? "GET" : asked;
  for (const HttpRoute& route : path->second) {
    if (method == MethodName(route.method)) return &route;
  }
  return nullptr;
}

HttpReply HttpServer::Impl::NoRoute(const Connection& connection) const {
  if (connection.head.path == nullptr) return HttpError(404, "no such path");
  std::string allowed;
  for (const HttpRoute& route : routes_.at(*connection.head.path)) {
    allowed += (allowed.empty() ? "" : ", ") + std::string(MethodName(route.method));
  }
  HttpReply refusal = HttpError(405, "method not allowed; allowed methods: " + allowed);
  refusal.headers.emplace_back("Allow", allowed);
  return refusal;
}

void HttpServer::Impl::Dispatch(const Shared& connection) {
  HttpRequest request = connection->reader.Take();
  const HttpRoute* const route = connection->head.route;
  if (route == nullptr) return Answer(connection, NoRoute(*connection), request.keep_alive);
  const bool head_only = connection->head.head_only;
  request.peer = connection->peer;
  request.received_us = SteadyUs();
  request.role = connection->head.role;
  Enter(*connection, Phase::kHandling);
  using Lane = HttpRoute::Lane;
  const bool large = route->lane == Lane::kQuery && request.body.size() > HttpRoute::kLargeBody;
  Pool& pool = PoolOf(large ? Lane::kLargeQuery : route->lane);
  const int descriptor = connection->stream.descriptor();
  pool.Post(connection->client, [this, connection, descriptor, route, &pool,
                                 request = std::move(request), head_only] {
    if (stage_ == Stage::kEnded) return;
    HttpReply reply = Abandon(*route, descriptor, request)
                          ? HttpError(503, "the client left while the request waited")
                          : Handle(*route, request);
    const std::string_view trace = TraceParentOf(request);
    if (!trace.empty()) reply.headers.emplace_back("traceparent", trace);
    const bool in_pieces = reply.next_piece != nullptr;
    const bool chunks = request.takes_chunks;
    const bool stays = request.keep_alive && stage_ == Stage::kRunning && (!in_pieces || chunks);
    Finished finished{
        RenderReply(reply, stays, head_only, chunks), stays, {}, reply.status, std::string(trace)};
    if (in_pieces && !head_only) {
      finished.pieces =
          std::make_shared<Pieces>(Pieces{std::move(reply.next_piece), &pool, chunks, stays});
    }
    // The thread of kObserver makes the next reply only after the socket thread has taken this
    // reply. Many large replies that are ready at the same time would delay all other clients.
    const bool paced = route->lane == Lane::kObserver;
    finished.paced = paced;
    Finish(connection, std::move(finished));
    if (paced) taken_.acquire();
  });
}

bool HttpServer::Impl::Abandon(const HttpRoute& route, int descriptor, const HttpRequest& request) {
  if (route.method != HttpRoute::Method::kGet && !route.needs_client) return false;
  if (SteadyUs() - request.received_us < options_.abandoned_after_ms * 1000) return false;
  if (!HttpStream::ClientEnded(descriptor)) return false;
  ++counts_.abandoned;
  return true;
}

void HttpServer::Impl::PostNextPiece(const Shared& connection) {
  if (SteadyMs() >= connection->reply_until_ms) {
    ++counts_.timed_out;
    return Close(connection);
  }
  Enter(*connection, Phase::kHandling);
  auto pieces = std::exchange(connection->pieces, {});
  Pool& pool = *pieces->pool;
  pool.Post(connection->client, [this, connection, pieces = std::move(pieces)]() mutable {
    if (stage_ == Stage::kEnded) return;
    const std::optional<std::string> piece = NextPiece(pieces->next);
    Finished finished{"", piece && pieces->keep_alive, {}, 0};
    if (piece) finished.bytes = pieces->chunks ? RenderChunk(*piece) : *piece;
    if (piece && !piece->empty()) finished.pieces = std::move(pieces);
    pieces.reset();  // freed before the client gets the end of the reply
    Finish(connection, std::move(finished));
  });
}

// Sending a reply takes more time than reading a small request, so replies take turns too.
void HttpServer::Impl::Finish(Shared connection, Finished finished) {
  boost::asio::post(io_, [this, connection = std::move(connection),
                          finished = std::make_unique<Finished>(std::move(finished))]() mutable {
    // A thread waits for a paced reply, and must not wait for all requests of this client.
    const std::string client = finished->paced ? "" : connection->client;
    turns_.queue.Push(client, {std::move(connection), std::move(finished)});
    TakeTurnsLater();
  });
}

void HttpServer::Impl::OnFinished(const Shared& connection, Finished finished) {
  if (finished.status != 0) NoteAnswer(*connection, finished.status, finished.traceparent);
  if (finished.status >= 200 && finished.status < 400) connection->newcomer = false;
  connection->pieces = std::move(finished.pieces);
  connection->out = std::move(finished.bytes);
  connection->closing = !finished.keep_alive;
  Send(connection, Phase::kReplying);
}

void HttpServer::Impl::Answer(const Shared& connection, const HttpReply& reply, bool keep_alive) {
  NoteAnswer(*connection, reply.status, {});
  Reply(connection, reply, keep_alive);
}

void HttpServer::Impl::AnswerUnread(const Shared& connection, const HttpReply& reply) {
  connection->reader.Drop();
  connection->in = {};
  Answer(connection, reply, false);
}

void HttpServer::Impl::Reply(const Shared& connection, const HttpReply& reply, bool keep_alive) {
  keep_alive = keep_alive && stage_ == Stage::kRunning;
  connection->out += RenderReply(reply, keep_alive, connection->head.head_only);
  connection->closing = !keep_alive;
  Send(connection, Phase::kReplying);
}

// A write is in progress only in the phases kContinuing and kReplying. Between two of these phases
// there is always another phase, so writes do not overlap.
void HttpServer::Impl::Send(const Shared& connection, Phase phase) {
  if (phase == Phase::kReplying && connection->reply_until_ms == 0) {
    connection->reply_until_ms = SteadyMs() + options_.reply_timeout_ms;
  }
  Enter(*connection, phase);
  CountHeld(*connection);
  if (phase == Phase::kReplying) CountReply(*connection);
  Write(connection);
}

void HttpServer::Impl::Write(const Shared& connection) {
  if (connection->sent == connection->out.size()) return OnSent(connection);
  connection->stream.AsyncWrite(std::string_view(connection->out).substr(connection->sent),
                                [this, connection](const Error& error, size_t bytes) {
                                  if (connection->closed()) return;
                                  if (error) return Close(connection);
                                  connection->sent += bytes;
                                  connection->deadline_ms = Deadline(*connection);
                                  Write(connection);
                                });
}

void HttpServer::Impl::OnSent(const Shared& connection) {
  ForgetReply(*connection);
  connection->out = {};
  connection->sent = 0;
  if (connection->phase == Phase::kContinuing) {
    Enter(*connection, Phase::kReceiving);
    CountHeld(*connection);
    return Read(connection);
  }
  CountHeld(*connection);
  if (connection->pieces) return PostNextPiece(connection);
  connection->reply_until_ms = 0;
  if (connection->closing) return Linger(connection);
  if (drain_until_ms_ != 0) return Close(connection);
  connection->head = {};
  Enter(*connection, Phase::kIdle);
  return connection->in.size() > 0 ? ReadLater(connection) : Read(connection);
}

// The server reads until the client ends the connection, but at most for kLingerMs. If the server
// closed the connection with unread bytes, TCP would reset the connection, and the client could
// lose the answer.
void HttpServer::Impl::Linger(const Shared& connection) {
  Enter(*connection, Phase::kLingering);
  connection->in = {};
  CountHeld(*connection);
  connection->stream.AsyncEnd([this, connection] {
    if (connection->closed()) return;
    connection->reading = false;  // the result of a read of TLS in progress is ignored
    return connection->ended ? Close(connection) : Read(connection);
  });
}

}  // namespace kvcast
