// SPDX-License-Identifier: Apache-2.0
#include "router/service/http/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "router/service/http/http_listener.h"
#include "router/service/http/http_workers.h"

namespace kvcast::router {
namespace {

constexpr size_t kReadBytes = 64 << 10;
constexpr int kTickMs = 250;
constexpr int64_t kLingerMs = 1000;
// A request that holds less is not refused for want of room, so that health checks go through.
constexpr size_t kSmallBytes = 4 << 10;
constexpr uint64_t kListenerId = 0;
constexpr uint64_t kWakerId = 1;
constexpr char kContinue[] = "HTTP/1.1 100 Continue\r\n\r\n";

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

const char* MethodName(HttpRoute::Method method) {
  constexpr std::array kNames = {"GET", "POST", "DELETE"};
  return kNames[static_cast<size_t>(method)];
}

// What is still to come of a reply in pieces.
struct Pieces {
  std::function<std::string()> next;
  HttpWorkers* workers = nullptr;  // where it is made
  bool chunks = true;
  bool keep_alive = false;
};

struct Connection {
  Connection(uint64_t number, Descriptor descriptor, const HttpLimits& limits)
      : id(number), socket(std::move(descriptor)), reader(limits) {}

  const uint64_t id;
  Descriptor socket;
  RequestReader reader;
  std::string in;
  std::string out;
  size_t sent = 0;                      // of out
  size_t held = 0;                      // as counted in the server's sum
  int64_t deadline_ms = 0;              // of what it is in the middle of
  bool began = false;                   // a request's first byte is here
  bool busy = false;                    // a handler has its request
  bool closing = false;                 // after what is in out
  bool gone = false;                    // the client left while a handler had its request
  bool lingering = false;               // all is said; what still comes is thrown away
  uint32_t events = 0;                  // asked of epoll
  std::shared_ptr<Pieces> pieces;       // nullptr: out is all of the reply
  int64_t pieces_until_ms = 0;          // 0: no reply in pieces
  std::list<uint64_t>::iterator quiet;  // in Impl::quiet_; not if busy
};

struct Finished {
  uint64_t id = 0;
  std::string bytes;
  bool keep_alive = false;
  std::shared_ptr<Pieces> pieces;  // nullptr: these bytes are the last
};

// Nothing of an earlier request is under way.
bool AwaitsRequest(const Connection& connection) {
  return !connection.busy && !connection.lingering && connection.out.empty();
}

// Handlers are ours; what one throws all the same (memory) must not end the process.
HttpReply Handle(const HttpRoute& route, const HttpRequest& request) {
  try {
    return route.handler(request);
  } catch (...) {
    return HttpError(500, "internal error");
  }
}

// nullopt: the reply cannot be ended, and the client must see that it is not whole.
std::optional<std::string> NextPiece(const Pieces& pieces) {
  try {
    return pieces.next();
  } catch (...) {
    return std::nullopt;
  }
}

}  // namespace

class HttpServer::Impl {
 public:
  explicit Impl(const HttpOptions& options)
      : options_(options),
        local_only_(IsLoopbackAddress(options.address)),
        max_connections_(std::min(options.max_connections, OpenFilesForConnections())) {}

  Status Start(std::vector<HttpRoute> routes);
  void Stop();
  int port() const { return listener_.port; }
  HttpCounters counters() const;

 private:
  using Method = HttpRoute::Method;
  using Quiet = std::list<uint64_t>;

  void Loop();
  void Turn();
  void Drain();
  void Watch(int fd, uint64_t id, uint32_t events, int operation) const;
  void Accept(int64_t now_ms);
  bool MakeRoom();
  void OnSocket(Connection& connection, uint32_t events, int64_t now_ms);
  bool Receive(Connection& connection);
  void Advance(Connection& connection, int64_t now_ms);
  void Dispatch(Connection& connection, int64_t now_ms);
  void Answer(Connection& connection, const HttpReply& reply, bool keep_alive, int64_t now_ms,
              bool head_only = false);
  void Send(Connection& connection, int64_t now_ms);
  int64_t WriteDeadline(const Connection& connection, int64_t now_ms) const;
  void OnSent(Connection& connection, int64_t now_ms);
  void Linger(Connection& connection, int64_t now_ms);
  void PostNextPiece(Connection& connection, int64_t now_ms);
  void Finish(Finished finished);
  void TakeFinished(int64_t now_ms);
  void Sweep(int64_t now_ms);
  void Close(Connection& connection);
  void CountHeld(Connection& connection);
  void NoteBusy(Connection& connection);
  void NoteQuiet(Connection& connection);
  std::optional<HttpReply> Refusal(const HttpRequest& request) const;
  const HttpRoute* FindRoute(const HttpRequest& request, HttpReply& refusal) const;
  void Wake() const;

  const HttpOptions options_;
  const bool local_only_;
  const size_t max_connections_;
  std::map<std::string, std::vector<HttpRoute>> routes_;  // by path; fixed once started
  Listener listener_;
  Descriptor epoll_;
  Descriptor waker_;
  // The loop's thread.
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  Quiet quiet_;  // connections whose handler does not run, longest without a reply first
  uint64_t next_id_ = kWakerId + 1;
  std::vector<uint64_t> ready_;  // answered, and the next request is here already
  int64_t next_sweep_ms_ = 0;
  int64_t drain_until_ms_ = 0;  // 0: not stopping
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> open_{0};
  std::atomic<uint64_t> accepted_{0};
  std::atomic<uint64_t> evicted_{0};
  std::atomic<uint64_t> timed_out_{0};
  std::atomic<uint64_t> refused_bytes_{0};
  std::atomic<uint64_t> held_{0};
  Mutex finished_mutex_;
  std::vector<Finished> finished_ KV_GUARDED_BY(finished_mutex_);
  std::unique_ptr<HttpWorkers> query_workers_;
  std::unique_ptr<HttpWorkers> observer_workers_;
  std::thread loop_;
};

Status HttpServer::Impl::Start(std::vector<HttpRoute> routes) {
  if (options_.threads < 1 || options_.port < 0 || options_.port > 65535) {
    return Status(StatusCode::kInvalidArgument, "http: port or threads out of range");
  }
  auto listener = ListenOn(options_.address, options_.port);
  if (!listener.ok()) return listener.status();
  listener_ = std::move(listener).value();
  for (HttpRoute& route : routes) routes_[route.path].push_back(std::move(route));
  epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  waker_ = Descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (epoll_.get() < 0 || waker_.get() < 0) {
    return Status(StatusCode::kUnavailable, "http: out of file descriptors");
  }
  Watch(listener_.socket.get(), kListenerId, EPOLLIN, EPOLL_CTL_ADD);
  Watch(waker_.get(), kWakerId, EPOLLIN, EPOLL_CTL_ADD);
  query_workers_ = std::make_unique<HttpWorkers>(options_.threads);
  observer_workers_ = std::make_unique<HttpWorkers>(1);
  loop_ = std::thread([this] { Loop(); });
  return Status();
}

void HttpServer::Impl::Stop() {
  stopping_ = true;
  if (loop_.joinable()) {
    Wake();
    loop_.join();
  }
  // After the loop, which drops what these may still finish.
  if (query_workers_) query_workers_->Stop();
  if (observer_workers_) observer_workers_->Stop();
}

HttpCounters HttpServer::Impl::counters() const {
  return {.connections = open_,
          .accepted = accepted_,
          .evicted = evicted_,
          .timed_out = timed_out_,
          .refused_bytes = refused_bytes_,
          .held_bytes = held_};
}

void HttpServer::Impl::Wake() const {
  const uint64_t one = 1;
  (void)!write(waker_.get(), &one, sizeof(one));  // fails only when it is awake already
}

void HttpServer::Impl::Watch(int fd, uint64_t id, uint32_t events, int operation) const {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = id;
  epoll_ctl(epoll_.get(), operation, fd, &event);
}

void HttpServer::Impl::Loop() {
  while (true) {
    if (stopping_) Drain();
    if (stopping_ && connections_.empty()) return;
    Turn();
  }
}

// Closes what has nothing under way, and everything once the time is up.
void HttpServer::Impl::Drain() {
  const int64_t now_ms = NowMs();
  if (drain_until_ms_ == 0) {
    drain_until_ms_ = now_ms + options_.drain_timeout_ms;
    listener_.socket.Close();
  }
  std::vector<Connection*> ends;
  for (const auto& [id, connection] : connections_) {
    if (!connection->began || now_ms >= drain_until_ms_) ends.push_back(connection.get());
  }
  for (Connection* connection : ends) Close(*connection);
}

void HttpServer::Impl::Turn() {
  std::array<epoll_event, 256> events;
  const int ready = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                               ready_.empty() ? kTickMs : 0);
  const int64_t now_ms = NowMs();
  for (int i = 0; i < ready; ++i) {
    const uint64_t id = events[static_cast<size_t>(i)].data.u64;
    if (id == kListenerId) {
      Accept(now_ms);
    } else if (id == kWakerId) {
      uint64_t count = 0;
      (void)!read(waker_.get(), &count, sizeof(count));
    } else if (const auto it = connections_.find(id); it != connections_.end()) {
      OnSocket(*it->second, events[static_cast<size_t>(i)].events, now_ms);
    }
  }
  for (const uint64_t id : std::exchange(ready_, {})) {
    const auto it = connections_.find(id);
    // New bytes may have brought it forward in this very turn.
    if (it != connections_.end() && AwaitsRequest(*it->second)) Advance(*it->second, now_ms);
  }
  TakeFinished(now_ms);
  if (now_ms < next_sweep_ms_) return;
  next_sweep_ms_ = now_ms + kTickMs;
  Sweep(now_ms);
}

bool HttpServer::Impl::MakeRoom() {
  if (quiet_.empty()) return false;
  ++evicted_;
  Close(*connections_.at(quiet_.front()));
  return true;
}

void HttpServer::Impl::Accept(int64_t now_ms) {
  // A few at a time: those that are connected must not wait for a flood.
  for (int i = 0; i < 64 && drain_until_ms_ == 0; ++i) {
    Descriptor socket(
        accept4(listener_.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0) {
      if ((errno == EMFILE || errno == ENFILE) && MakeRoom()) continue;
      return;
    }
    ++accepted_;
    if (connections_.size() >= max_connections_ && !MakeRoom()) {
      ++evicted_;
      continue;
    }
    const int yes = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    const uint64_t id = next_id_++;
    auto connection = std::make_unique<Connection>(id, std::move(socket), options_.limits);
    connection->deadline_ms = now_ms + options_.idle_timeout_ms;
    connection->quiet = quiet_.insert(quiet_.end(), id);
    connection->events = EPOLLIN;
    Watch(connection->socket.get(), id, EPOLLIN, EPOLL_CTL_ADD);
    connections_.emplace(id, std::move(connection));
    ++open_;
  }
}

void HttpServer::Impl::Close(Connection& connection) {
  held_ -= connection.held;
  if (!connection.busy) quiet_.erase(connection.quiet);
  --open_;
  connections_.erase(connection.id);
}

void HttpServer::Impl::CountHeld(Connection& connection) {
  const size_t now = connection.in.size() + connection.reader.held_bytes() + connection.out.size();
  held_ += now - connection.held;
  connection.held = now;
}

void HttpServer::Impl::OnSocket(Connection& connection, uint32_t events, int64_t now_ms) {
  if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
    if (!connection.busy) return Close(connection);
    connection.gone = true;
    Watch(connection.socket.get(), connection.id, 0, EPOLL_CTL_DEL);
    return;
  }
  if ((events & EPOLLOUT) != 0) return Send(connection, now_ms);
  if ((events & EPOLLIN) == 0) return;
  if (!Receive(connection)) return Close(connection);
  if (connection.lingering) return;
  Advance(connection, now_ms);
}

// False: it is over.
bool HttpServer::Impl::Receive(Connection& connection) {
  // One buffer for all connections: an idle one holds no memory for what may come.
  static thread_local std::array<char, kReadBytes> buffer;
  const ssize_t got = recv(connection.socket.get(), buffer.data(), buffer.size(), 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;  // nobody waits for an answer to less than a request
  if (connection.lingering) return true;
  connection.in.append(buffer.data(), static_cast<size_t>(got));
  return true;
}

// Reads the next request out of what is here; until it is whole, waits for more.
void HttpServer::Impl::Advance(Connection& connection, int64_t now_ms) {
  if (!connection.began && !connection.in.empty()) {
    connection.began = true;
    connection.deadline_ms = now_ms + options_.request_timeout_ms;
  }
  const RequestReader::State state = connection.reader.Read(connection.in);
  if (connection.in.empty()) connection.in = {};
  CountHeld(connection);
  if (state == RequestReader::State::kBad) {
    return Answer(connection, connection.reader.error(), false, now_ms);
  }
  if (held_ > options_.max_held_bytes && connection.held > kSmallBytes) {
    ++refused_bytes_;
    return Answer(connection, HttpError(503, "too many requests at once"), false, now_ms);
  }
  if (state == RequestReader::State::kComplete) return Dispatch(connection, now_ms);
  if (connection.reader.TakeAwaitsContinue()) {
    connection.out += kContinue;
    Send(connection, now_ms);
  }
}

// What a page of another site makes a browser send has an Origin, or a Host that is not ours.
std::optional<HttpReply> HttpServer::Impl::Refusal(const HttpRequest& request) const {
  const std::string_view host = request.Header("host");
  if (local_only_ && !host.empty() && !IsLoopbackHost(host)) {
    return HttpError(403, "host: this service answers on loopback names only");
  }
  const std::string_view origin = request.Header("origin");
  if (origin.empty() || request.method == "GET" || request.method == "HEAD") return std::nullopt;
  const size_t scheme = origin.find("://");
  if (scheme != std::string_view::npos && origin.substr(scheme + 3) == host) return std::nullopt;
  return HttpError(403, "origin: requests of other sites' pages are not answered");
}

const HttpRoute* HttpServer::Impl::FindRoute(const HttpRequest& request, HttpReply& refusal) const {
  const auto path = routes_.find(request.path);
  if (path == routes_.end()) {
    refusal = HttpError(404, "no such path");
    return nullptr;
  }
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  std::string allowed;
  for (const HttpRoute& route : path->second) {
    if (method == MethodName(route.method)) return &route;
    allowed += (allowed.empty() ? "" : ", ") + std::string(MethodName(route.method));
  }
  refusal = HttpError(405, "method not allowed, but: " + allowed);
  refusal.headers.emplace_back("Allow", allowed);
  return nullptr;
}

void HttpServer::Impl::Dispatch(Connection& connection, int64_t now_ms) {
  HttpRequest request = connection.reader.Take();
  const bool keep_alive = request.keep_alive;
  const bool head_only = request.method == "HEAD";
  if (const auto refusal = Refusal(request)) {
    return Answer(connection, *refusal, false, now_ms, head_only);
  }
  HttpReply refused;
  const HttpRoute* const route = FindRoute(request, refused);
  if (route == nullptr) return Answer(connection, refused, keep_alive, now_ms, head_only);
  NoteBusy(connection);
  HttpWorkers& workers =
      route->lane == HttpRoute::Lane::kObserver ? *observer_workers_ : *query_workers_;
  // Shared, because std::function copies; one owner at a time.
  auto shared = std::make_shared<HttpRequest>(std::move(request));
  workers.Post([this, id = connection.id, route, shared, keep_alive, head_only, &workers] {
    HttpReply reply = Handle(*route, *shared);
    const bool in_pieces = reply.next_piece != nullptr;
    const bool stays = keep_alive && !stopping_ && (!in_pieces || shared->takes_chunks);
    Finished finished{id, RenderReply(reply, stays, head_only, shared->takes_chunks), stays, {}};
    if (in_pieces && !head_only) {
      finished.pieces = std::make_shared<Pieces>(
          Pieces{std::move(reply.next_piece), &workers, shared->takes_chunks, stays});
    }
    Finish(std::move(finished));
  });
}

void HttpServer::Impl::PostNextPiece(Connection& connection, int64_t now_ms) {
  if (now_ms >= connection.pieces_until_ms) {
    ++timed_out_;
    return Close(connection);
  }
  NoteBusy(connection);
  auto pieces = std::exchange(connection.pieces, {});
  HttpWorkers& workers = *pieces->workers;
  workers.Post([this, id = connection.id, pieces = std::move(pieces)]() mutable {
    const std::optional<std::string> piece = NextPiece(*pieces);
    Finished finished{id, "", piece && pieces->keep_alive, {}};
    if (piece) finished.bytes = pieces->chunks ? RenderChunk(*piece) : *piece;
    if (piece && !piece->empty()) finished.pieces = std::move(pieces);
    pieces.reset();  // what it holds is free before the client knows that it is over
    Finish(std::move(finished));
  });
}

void HttpServer::Impl::Finish(Finished finished) {
  {
    const MutexLock lock(finished_mutex_);
    finished_.push_back(std::move(finished));
  }
  Wake();
}

void HttpServer::Impl::TakeFinished(int64_t now_ms) {
  std::vector<Finished> finished;
  {
    const MutexLock lock(finished_mutex_);
    finished.swap(finished_);
  }
  for (Finished& reply : finished) {
    const auto it = connections_.find(reply.id);
    if (it == connections_.end()) continue;
    Connection& connection = *it->second;
    if (connection.gone) {
      Close(connection);
      continue;
    }
    NoteQuiet(connection);
    if (reply.pieces && connection.pieces_until_ms == 0) {
      connection.pieces_until_ms = now_ms + options_.pieces_timeout_ms;
    }
    connection.pieces = std::move(reply.pieces);
    connection.out += reply.bytes;
    connection.closing = !reply.keep_alive;
    Send(connection, now_ms);
  }
}

void HttpServer::Impl::NoteBusy(Connection& connection) {
  connection.busy = true;
  quiet_.erase(connection.quiet);
  if (connection.events == 0) return;
  Watch(connection.socket.get(), connection.id, connection.events = 0, EPOLL_CTL_MOD);
}

void HttpServer::Impl::NoteQuiet(Connection& connection) {
  connection.busy = false;
  connection.quiet = quiet_.insert(quiet_.end(), connection.id);
}

void HttpServer::Impl::Answer(Connection& connection, const HttpReply& reply, bool keep_alive,
                              int64_t now_ms, bool head_only) {
  keep_alive = keep_alive && !stopping_;
  connection.out += RenderReply(reply, keep_alive, head_only);
  connection.closing = !keep_alive;
  Send(connection, now_ms);
}

void HttpServer::Impl::Send(Connection& connection, int64_t now_ms) {
  while (connection.sent < connection.out.size()) {
    const ssize_t sent = send(connection.socket.get(), connection.out.data() + connection.sent,
                              connection.out.size() - connection.sent, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) return Close(connection);
    if (sent < 0) {
      CountHeld(connection);
      if (connection.events == EPOLLOUT) return;
      connection.deadline_ms = WriteDeadline(connection, now_ms);
      connection.events = EPOLLOUT;
      return Watch(connection.socket.get(), connection.id, EPOLLOUT, EPOLL_CTL_MOD);
    }
    connection.sent += static_cast<size_t>(sent);
    if (connection.events == EPOLLOUT) connection.deadline_ms = WriteDeadline(connection, now_ms);
  }
  OnSent(connection, now_ms);
}

int64_t HttpServer::Impl::WriteDeadline(const Connection& connection, int64_t now_ms) const {
  const int64_t deadline_ms = now_ms + options_.write_timeout_ms;
  return connection.pieces_until_ms == 0 ? deadline_ms
                                         : std::min(deadline_ms, connection.pieces_until_ms);
}

void HttpServer::Impl::OnSent(Connection& connection, int64_t now_ms) {
  connection.out = {};
  connection.sent = 0;
  CountHeld(connection);
  if (connection.pieces) return PostNextPiece(connection, now_ms);
  connection.pieces_until_ms = 0;
  if (connection.closing) return Linger(connection, now_ms);
  if (connection.events != EPOLLIN) {
    connection.events = EPOLLIN;
    Watch(connection.socket.get(), connection.id, EPOLLIN, EPOLL_CTL_MOD);
  }
  if (connection.reader.state() == RequestReader::State::kBody) return;  // after "100 Continue"
  connection.began = false;
  connection.deadline_ms = now_ms + options_.idle_timeout_ms;
  if (!connection.in.empty()) ready_.push_back(connection.id);
}

// A close with bytes of the client unread would reset the connection, and the answer could be lost.
void HttpServer::Impl::Linger(Connection& connection, int64_t now_ms) {
  shutdown(connection.socket.get(), SHUT_WR);
  connection.lingering = true;
  connection.began = false;
  connection.in = {};
  CountHeld(connection);
  connection.deadline_ms = now_ms + kLingerMs;
  connection.events = EPOLLIN;
  Watch(connection.socket.get(), connection.id, EPOLLIN, EPOLL_CTL_MOD);
}

void HttpServer::Impl::Sweep(int64_t now_ms) {
  std::vector<Connection*> late;
  for (const auto& [id, connection] : connections_) {
    if (!connection->busy && now_ms >= connection->deadline_ms) late.push_back(connection.get());
  }
  for (Connection* connection : late) {
    if (connection->began) ++timed_out_;
    if (!connection->began || connection->events == EPOLLOUT) {
      Close(*connection);
    } else {
      Answer(*connection, HttpError(408, "request: not complete in time"), false, now_ms);
    }
  }
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { Stop(); }

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                      std::vector<HttpRoute> routes) {
  std::unique_ptr<HttpServer> server(new HttpServer(std::make_unique<Impl>(options)));
  if (const Status started = server->impl_->Start(std::move(routes)); !started.ok()) {
    return started;
  }
  return server;
}

int HttpServer::port() const { return impl_->port(); }
HttpCounters HttpServer::counters() const { return impl_->counters(); }
void HttpServer::Stop() { impl_->Stop(); }

}  // namespace kvcast::router
