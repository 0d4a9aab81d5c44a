// The implementation of HttpServer. Only the socket thread (loop_) uses the members, unless a
// comment states otherwise.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <semaphore>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "src/base/descriptor.h"
#include "src/http/access_tokens.h"
#include "src/http/client_connections.h"
#include "src/http/connection_phase.h"
#include "src/http/fair_pool.h"
#include "src/http/fair_queue.h"
#include "src/http/host_rules.h"
#include "src/http/http_server.h"
#include "src/http/http_stream.h"
#include "src/http/newcomer_queue.h"
#include "src/http/ready_sockets.h"
#include "src/http/request_counts.h"
#include "src/http/request_reader.h"

namespace kvcast {

class HttpServer::Impl {
 public:
  explicit Impl(const HttpOptions& options);

  Status Start(std::vector<HttpRoute> routes);
  void Stop();
  int port() const { return listener_.port; }
  HttpCounters counters() const;
  HttpRequestCounts request_counts() const { return requests_.Read(); }

 private:
  using Error = HttpStream::Error;
  using Phase = ConnectionPhase;
  using Pool = FairPool;
  static constexpr size_t kLanes = static_cast<size_t>(HttpRoute::Lane::kHealth) + 1;

  enum class Stage : uint8_t {
    kRunning,
    kStopping,  // requests that have begun are answered
    kEnded,     // no reply can be sent
  };
  // The remaining pieces of a reply.
  struct Pieces {
    std::function<std::string()> next;
    Pool* pool = nullptr;  // the pool that makes the pieces
    bool chunks = true;
    bool keep_alive = false;
  };
  // The route, token and refusal of a complete head.
  struct Head {
    const HttpRoute* route = nullptr;   // nullptr: none
    const std::string* path = nullptr;  // key of Impl::routes_; nullptr: none
    bool head_only = false;             // HEAD
    std::optional<AccessRole> role;     // of the token
    std::optional<HttpReply> refusal;   // reply of a request that is refused; the body is not read
  };
  struct Connection {
    Connection(uint64_t number, Descriptor socket, const sockaddr_storage& address, Impl& server);
    bool closed() const { return phase == Phase::kClosed; }

    const uint64_t id;
    const std::string peer;    // see HttpAnswer
    const std::string client;  // clients take turns, see ClientOf
    HttpStream stream;
    RequestReader reader;
    boost::beast::flat_buffer in;
    std::string out;
    size_t sent = 0;                  // bytes of `out` that were sent
    size_t held = 0;                  // bytes of this connection in HttpCounters::held_bytes
    int64_t deadline_ms = 0;          // of the phase, or of the write after its latest progress
    Phase phase = Phase::kHandshake;  // only Enter changes it
    bool reading = false;             // a read is in progress
    bool awaits = false;              // AwaitBytes was called, and ReadReady was not called since
    bool newcomer = true;             // see NewcomerQueue
    bool closing = false;             // the connection ends after the current reply
    bool ended = false;               // the client sends no more bytes
    Head head;                        // the latest complete head, until its reply was sent
    std::shared_ptr<Pieces> pieces;   // nullptr: no piece of the reply follows `out`
    int64_t reply_until_ms = 0;       // deadline of the last byte of the reply; 0: no reply
    ClientConnections::Place place;   // in Impl::clients_; valid until the phase kClosed
    std::optional<std::list<uint64_t>::iterator> unread;  // position in UnreadReplies::ids
  };
  using Shared = std::shared_ptr<Connection>;
  struct Newcomers {
    explicit Newcomers(boost::asio::io_context& io)
        : ready(io, ReadySockets::For::kBytes), timer(io) {}

    NewcomerQueue<Shared> queue;
    ReadySockets ready;
    boost::asio::steady_timer timer;  // runs while work waits for the next slice
    bool timer_runs = false;
    bool accept_paused = false;  // until the next sweep
  };
  struct Listener {
    explicit Listener(boost::asio::io_context& io) : acceptor(io) {}

    boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol> acceptor;
    bool owns_path = false;  // unix_path is this server's socket
    int port = 0;            // constant after Start
  };
  struct LateConnections {
    explicit LateConnections(boost::asio::io_context& io) : timer(io) {}

    boost::asio::steady_timer timer;  // until the next sweep
    std::vector<uint64_t> ids;        // found by a sweep, but not handled yet
  };
  // Replies of more than kSmallBytes (exchange.cc) that are being sent.
  struct UnreadReplies {
    std::list<uint64_t> ids;  // of their connections; the oldest reply is first
    size_t bytes = 0;
  };
  struct Finished {
    std::string bytes;
    bool keep_alive = false;
    std::shared_ptr<Pieces> pieces;  // nullptr: `bytes` ends the reply
    int status = 0;                  // 0: a later piece
    std::string traceparent = {};
    bool paced = false;  // a thread waits for taken_ until the socket thread has taken the reply
  };

  // The next work for a connection: a reply is sent, a write goes on, or bytes are read.
  struct Turn {
    Shared connection;
    std::unique_ptr<Finished> finished = nullptr;  // the reply
    bool has_room = false;                         // a write goes on
  };
  // The work for connections, without the reads of newcomers. The clients take turns.
  struct Turns {
    explicit Turns(boost::asio::io_context& io)
        : ready(io, ReadySockets::For::kBytes), full(io, ReadySockets::For::kRoom) {}

    FairQueue<std::string, Turn> queue;
    ReadySockets ready;
    ReadySockets full;       // connections whose writes wait for room
    bool to_find = false;    // connections of `ready` may have bytes
    bool is_posted = false;  // TakeTurns was posted
  };

  // The values of HttpCounters. Used by any thread.
  struct Counts {
    std::atomic<uint64_t> connections{0};
    std::atomic<uint64_t> accepted{0};
    std::atomic<uint64_t> evicted{0};
    std::atomic<uint64_t> timed_out{0};
    std::atomic<uint64_t> refused_bytes{0};
    std::atomic<uint64_t> held_bytes{0};
    std::atomic<uint64_t> abandoned{0};
  };

  // listen.cc: the address.
  Status Listen();
  Status ListenOnTcp();
  Status ListenOnUnix();
  Status OpenAcceptor(const boost::asio::generic::stream_protocol::endpoint& endpoint);
  // Removes the unix socket. Must be called before the acceptor closes. No-op in a second call.
  void Unlisten();

  // http_server.cc: connections are opened and closed.
  Status LoadSecrets();
  void AwaitConnections();
  void Accept();
  void Admit(Descriptor socket, const sockaddr_storage& address);
  HeldSocket::Waits WaitsOf(uint64_t id);
  // False: the client has left, and the connection was closed.
  bool Handshake(const Shared& connection);
  // nullptr: the connection was closed.
  Shared ConnectionOf(uint64_t id) const;
  // False: the new connection of the client must be refused.
  bool LetIn(const std::string& client);
  // Closes the connection `id`, to make room for another connection. False: `id` has no value.
  bool Evict(std::optional<uint64_t> id);
  void Close(const Shared& connection);
  void SweepLater(int64_t wait_ms);
  bool Sweep();
  void CloseIfLate(const Shared& connection, int64_t now_ms);
  void Drain();

  // turns.cc: the order of the work for connections.
  // Calls ReadReady when the socket has bytes.
  void AwaitBytes(const Shared& connection);
  // Calls ReadReady for bytes that were received before.
  void ReadLater(const Shared& connection);
  void AwaitReady();
  void FindReady();
  void TakeTurns();
  void TakeTurnsLater();
  void TakeTurn(Turn turn);
  // Finds the connections whose writes can go on.
  void AwaitWritable();
  void FindWritable();
  void AwaitNewcomers();
  void FindNewcomers();
  void QueueNewcomer(Shared connection);
  void ServeNewcomersLater();
  void ServeNewcomers();

  // exchange.cc: requests and replies of one connection.
  void Enter(Connection& connection, Phase phase);
  int64_t Deadline(const Connection& connection) const;
  void Read(const Shared& connection);
  void ReadReady(const Shared& connection);
  void OnRead(const Shared& connection, const Error& error, std::string_view bytes);
  void Advance(const Shared& connection);
  void CountHeld(Connection& connection);
  void CountReply(Connection& connection);
  void ForgetReply(Connection& connection);
  bool FindRoom(const Shared& connection);
  // nullptr: no route has this path and method. NoRoute gives the reply.
  const HttpRoute* FindRoute(const HttpRequest& request) const;
  HttpReply NoRoute(const Connection& connection) const;
  // Called when the head is complete. Returns the maximum size of the body.
  size_t OnHead(Connection& connection, const HttpRequest& head);
  std::optional<HttpReply> Refusal(const HttpRequest& head, Connection& connection) const;
  HttpReply Refuse(const HttpRequest& head, const Connection& connection, int status,
                   const char* why) const;
  void Dispatch(const Shared& connection);
  // Any thread. True: the request gets no handler, because it has waited and its client has left.
  bool Abandon(const HttpRoute& route, int descriptor, const HttpRequest& request);
  Pool& PoolOf(HttpRoute::Lane lane) { return *pools_[static_cast<size_t>(lane)]; }
  void PostNextPiece(const Shared& connection);
  void Finish(Shared connection, Finished finished);  // any thread
  void OnFinished(const Shared& connection, Finished finished);
  // Answer: counts the reply, and sends it. AnswerUnread: also drops the bytes of the request,
  // which is not read to its end. Reply: only sends it.
  void Answer(const Shared& connection, const HttpReply& reply, bool keep_alive);
  void AnswerUnread(const Shared& connection, const HttpReply& reply);
  void Reply(const Shared& connection, const HttpReply& reply, bool keep_alive);
  void NoteAnswer(const Connection& connection, int status, std::string_view traceparent);
  void Send(const Shared& connection, Phase phase);
  void Write(const Shared& connection);
  void OnSent(const Shared& connection);
  void Linger(const Shared& connection);

  const HttpOptions options_;
  const HostRules host_rules_;
  const size_t max_connections_;
  const size_t max_client_connections_;
  std::optional<AccessTokens> tokens_;                    // constant after Start
  std::map<std::string, std::vector<HttpRoute>> routes_;  // by path; constant after Start
  HttpStream::Scratch scratch_;
  std::optional<boost::asio::ssl::context> tls_;
  boost::asio::io_context io_{1};
  Listener listener_{io_};
  LateConnections late_{io_};
  std::unordered_map<uint64_t, Shared> connections_;
  ClientConnections clients_;
  // Unfinished requests that hold more than kSmallBytes. An element is the number of held bytes and
  // the bitwise complement of the connection id. The last element is refused first. If several
  // requests have the same size, the last element belongs to the oldest connection.
  std::set<std::pair<size_t, uint64_t>> unfinished_;
  UnreadReplies unread_;
  Turns turns_{io_};
  Newcomers newcomers_{io_};
  uint64_t next_id_ = 0;
  int64_t drain_until_ms_ = 0;  // 0: not stopping
  // Used by any thread.
  std::atomic<Stage> stage_{Stage::kRunning};
  // The thread of the lane kObserver makes the next reply when the previous reply was taken.
  std::counting_semaphore<> taken_{0};
  Counts counts_;
  RequestCounts requests_;
  std::array<std::optional<Pool>, kLanes> pools_;  // by HttpRoute::Lane
  std::thread loop_;
};

}  // namespace kvcast
