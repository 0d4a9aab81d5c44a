// SPDX-License-Identifier: Apache-2.0
#include "src/http/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <utility>

#include "src/base/clock.h"
#include "src/base/descriptor.h"
#include "src/http/loopback.h"
#include "src/http/server_impl.h"
#include "src/http/tls_files.h"

namespace kvcast {
namespace {

namespace asio = boost::asio;

constexpr int64_t kTickMs = 250;
constexpr int64_t kNextSweepMs = 2;
constexpr size_t kMostInASweep = 8;
constexpr size_t kReservedFiles = 256;

// The number of files that this process may open, minus a reserve for the sockets of other parts of
// the program. If the number is small, the reserve is half of the number.
size_t OpenFilesForConnections() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kReservedFiles;
  const auto files = static_cast<size_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 24));
  return files > 2 * kReservedFiles ? files - kReservedFiles : std::max<size_t>(files / 2, 1);
}

// The kernel enlarges the file table when the number of open files passes a power of two. The
// thread that opens the file then waits for all cores, often for more than 10 ms. A file with a
// high number enlarges the table at once.
void EnlargeFileTable(int any_file, size_t files) {
  const Descriptor high(fcntl(any_file, F_DUPFD_CLOEXEC, static_cast<int>(files)));
}

std::string PeerOf(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.ss_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text.data(),
              text.size());
  } else if (address.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text.data(),
              text.size());
  } else {
    return "unix";
  }
  return text.data();
}

// The client of a connection: the address, or the network of an IPv6 address. One client can often
// use each address of a network.
std::string ClientOf(const sockaddr_storage& address) {
  if (address.ss_family != AF_INET6) return PeerOf(address);
  const in6_addr& bytes = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  constexpr size_t kNetworkBytes = 8;
  const bool is_ipv4 = IN6_IS_ADDR_V4MAPPED(&bytes);
  return {reinterpret_cast<const char*>(&bytes), is_ipv4 ? sizeof(bytes) : kNetworkBytes};
}

// The error concerns only the connection that would have been accepted.
bool IsOfOneConnection(int error) {
  return error == ECONNABORTED || error == EINTR || error == EPROTO || error == EPERM;
}

Status Invalid(const std::string& text) { return {StatusCode::kInvalidArgument, "http: " + text}; }

}  // namespace

HttpServer::Impl::Impl(const HttpOptions& options)
    : options_(options),
      host_rules_(!options.unix_path.empty() || IsLoopbackAddress(options.address),
                  options.allowed_hosts),
      max_connections_(std::min(options.max_connections, OpenFilesForConnections())),
      max_client_connections_(max_connections_ - max_connections_ / 8) {}

HttpServer::Impl::Connection::Connection(uint64_t number, Descriptor socket,
                                         const sockaddr_storage& address, Impl& server)
    : id(number),
      peer(PeerOf(address)),
      client(ClientOf(address)),
      stream(HeldSocket(std::move(socket), server.io_, server.WaitsOf(number)),
             server.tls_ ? &*server.tls_ : nullptr, server.scratch_),
      reader(server.options_.limits, [this, &server](const HttpRequest& request) {
        return server.OnHead(*this, request);
      }) {}

Status HttpServer::Impl::Start(std::vector<HttpRoute> routes) {
  if (options_.threads < 1 || options_.port < 0 || options_.port > 65535) {
    return Invalid("port must be 0 to 65535, and threads at least 1");
  }
  if (!newcomers_.ready.is_open() || !turns_.ready.is_open() || !turns_.full.is_open()) {
    return {StatusCode::kUnavailable, "http: no file descriptor is free"};
  }
  if (Status status = LoadSecrets(); !status.ok()) return status;
  if (Status status = Listen(); !status.ok()) return status;
  for (HttpRoute& route : routes) routes_[route.path].push_back(std::move(route));
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const bool query = lane == static_cast<size_t>(HttpRoute::Lane::kQuery);
    pools_[lane].emplace(query ? static_cast<size_t>(options_.threads) : 1);
  }
  EnlargeFileTable(listener_.acceptor.native_handle(), max_connections_);
  AwaitConnections();
  AwaitNewcomers();
  AwaitReady();
  AwaitWritable();
  SweepLater(kTickMs);
  loop_ = std::thread([this] { io_.run(); });
  return Status();
}

Status HttpServer::Impl::LoadSecrets() {
  if (!options_.token_file.empty()) {
    Result<AccessTokens> tokens = AccessTokens::Read(options_.token_file);
    if (!tokens.ok()) return Invalid(tokens.status().message());
    tokens_ = std::move(tokens).value();
  }
  const std::string& certificate = options_.tls_certificate;
  const std::string& key = options_.tls_key;
  if (certificate.empty() != key.empty()) return Invalid("TLS needs a certificate and a key");
  if (certificate.empty()) return Status();
  tls_.emplace(asio::ssl::context::tls_server);
  const Status loaded = LoadTlsFiles(certificate, key, *tls_);
  return loaded.ok() ? loaded : Invalid(loaded.message());
}

void HttpServer::Impl::AwaitConnections() {
  listener_.acceptor.async_wait(asio::socket_base::wait_read, [this](const Error&) {
    if (!listener_.acceptor.is_open()) return;
    newcomers_.queue.SetToAccept(true);
    if (!newcomers_.timer_runs) ServeNewcomers();
  });
}

// Accepts few connections in a turn, so that open connections do not wait while many clients
// connect.
void HttpServer::Impl::Accept() {
  const int64_t begin_us = SteadyUs();
  int error = 0;
  for (int i = 0; i < NewcomerQueue<Shared>::kMostAccepted && error == 0; ++i) {
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    Descriptor socket(accept4(listener_.acceptor.native_handle(),
                              reinterpret_cast<sockaddr*>(&address), &size,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0 && !IsOfOneConnection(errno)) error = errno;
    if (socket.get() >= 0) Admit(std::move(socket), address);
  }
  newcomers_.queue.Spend(SteadyUs() - begin_us);
  if (error == 0) return;
  if ((error == EMFILE || error == ENFILE) && Evict(clients_.ToClose({}))) return;
  newcomers_.queue.SetToAccept(false);
  newcomers_.accept_paused = error != EAGAIN;
  if (!newcomers_.accept_paused) AwaitConnections();
}

void HttpServer::Impl::Admit(Descriptor socket, const sockaddr_storage& address) {
  ++counts_.accepted;
  if (!LetIn(ClientOf(address))) {
    ++counts_.evicted;
    return;
  }
  const auto connection =
      std::make_shared<Connection>(next_id_++, std::move(socket), address, *this);
  connection->deadline_ms = Deadline(*connection);
  connection->place = clients_.Open(connection->client);
  clients_.SetQuiet(connection->place, connection->id);
  connections_.emplace(connection->id, connection);
  ++counts_.connections;
  if (connection->stream.needs_handshake()) return AwaitBytes(connection);
  Enter(*connection, Phase::kIdle);
  Read(connection);
}

HeldSocket::Waits HttpServer::Impl::WaitsOf(uint64_t id) {
  const auto for_bytes = [this, id] {
    if (const Shared connection = ConnectionOf(id)) AwaitBytes(connection);
  };
  const auto for_room = [this, id] {
    const Shared connection = ConnectionOf(id);
    if (connection && !turns_.full.Watch(connection->stream.descriptor(), id)) Close(connection);
  };
  return {for_bytes, for_room};
}

bool HttpServer::Impl::Handshake(const Shared& connection) {
  // A handshake takes much time. Clients that have left must not delay other clients.
  if (HttpStream::ClientEnded(connection->stream.descriptor())) {
    Close(connection);
    return false;
  }
  connection->stream.AsyncHandshake([this, connection](const Error& error) {
    if (connection->closed()) return;
    if (error) return Close(connection);
    Enter(*connection, Phase::kIdle);
    Read(connection);
  });
  return true;
}

HttpServer::Impl::Shared HttpServer::Impl::ConnectionOf(uint64_t id) const {
  const auto found = connections_.find(id);
  return found == connections_.end() ? nullptr : found->second;
}

// One client cannot take all connections, so that other clients find room.
bool HttpServer::Impl::LetIn(const std::string& client) {
  if (clients_.CountOf(client) >= max_client_connections_) {
    return Evict(clients_.OldestQuietOf(client));
  }
  return connections_.size() < max_connections_ || Evict(clients_.ToClose(client));
}

bool HttpServer::Impl::Evict(std::optional<uint64_t> id) {
  if (!id) return false;
  ++counts_.evicted;
  Close(Shared(connections_.at(*id)));
  return true;
}

void HttpServer::Impl::Close(const Shared& connection) {
  if (connection->closed()) return;
  Enter(*connection, Phase::kClosed);
  clients_.Close(connection->place);
  connection->stream.Close();
  counts_.held_bytes -= connection->held;
  ForgetReply(*connection);
  unfinished_.erase({connection->held, ~connection->id});
  connection->pieces = nullptr;
  --counts_.connections;
  connections_.erase(connection->id);
  if (drain_until_ms_ != 0 && connections_.empty()) io_.stop();
}

void HttpServer::Impl::SweepLater(int64_t wait_ms) {
  late_.timer.expires_after(std::chrono::milliseconds(wait_ms));
  late_.timer.async_wait([this](const Error& error) {
    if (error) return;
    const bool more = Sweep();
    if (drain_until_ms_ != 0) Drain();
    if (std::exchange(newcomers_.accept_paused, false) && listener_.acceptor.is_open())
      AwaitConnections();
    SweepLater(more ? kNextSweepMs : kTickMs);
  });
}

// True: more connections are late. The server serves other connections before it closes these late
// connections, because thousands of connections can become late at the same time.
bool HttpServer::Impl::Sweep() {
  const int64_t now_ms = SteadyMs();
  if (late_.ids.empty()) {
    for (const auto& [id, connection] : connections_) {
      if (now_ms >= connection->deadline_ms) late_.ids.push_back(id);
    }
  }
  for (size_t i = 0; i < kMostInASweep && !late_.ids.empty(); ++i) {
    const Shared connection = ConnectionOf(late_.ids.back());
    late_.ids.pop_back();
    if (connection) CloseIfLate(connection, now_ms);
  }
  return !late_.ids.empty();
}

void HttpServer::Impl::CloseIfLate(const Shared& connection, int64_t now_ms) {
  if (now_ms < connection->deadline_ms) return;
  if (HasRequest(connection->phase)) ++counts_.timed_out;
  if (connection->phase == Phase::kReceiving) {
    AnswerUnread(connection, HttpError(408, "request: not complete in time"));
  } else {
    Close(connection);
  }
}

// Until the deadline, keeps the connections with a request in progress and the connections that
// close after their reply.
void HttpServer::Impl::Drain() {
  // As soon as the acceptor is closed, the path may belong to the socket of another server.
  Unlisten();
  Error ignored;
  listener_.acceptor.close(ignored);
  const int64_t now_ms = SteadyMs();
  if (drain_until_ms_ == 0) drain_until_ms_ = now_ms + options_.drain_timeout_ms;
  std::vector<Shared> to_close;
  for (const auto& [id, connection] : connections_) {
    const Phase phase = connection->phase;
    const bool stays = HasRequest(phase) || phase == Phase::kLingering;
    if (!stays || now_ms >= drain_until_ms_) to_close.push_back(connection);
  }
  if (now_ms >= drain_until_ms_) stage_ = Stage::kEnded;
  for (const Shared& connection : to_close) Close(connection);
  if (connections_.empty()) io_.stop();
}

void HttpServer::Impl::Stop() {
  if (stage_ == Stage::kRunning) stage_ = Stage::kStopping;
  if (loop_.joinable()) {
    asio::post(io_, [this] { Drain(); });
    loop_.join();
  }
  // The pools end after the loop. From here on, no reply can be sent. The pools finish the handlers
  // that run, and drop the requests that wait.
  stage_ = Stage::kEnded;
  taken_.release();
  for (auto& pool : pools_) {
    if (pool) pool->Stop();
  }
  Unlisten();  // after a start that failed, there was no Drain
}

HttpCounters HttpServer::Impl::counters() const {
  return {.connections = counts_.connections,
          .accepted = counts_.accepted,
          .evicted = counts_.evicted,
          .timed_out = counts_.timed_out,
          .refused_bytes = counts_.refused_bytes,
          .held_bytes = counts_.held_bytes,
          .abandoned = counts_.abandoned};
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
HttpRequestCounts HttpServer::request_counts() const { return impl_->request_counts(); }
HttpCounters HttpServer::counters() const { return impl_->counters(); }
void HttpServer::Stop() { impl_->Stop(); }

}  // namespace kvcast
