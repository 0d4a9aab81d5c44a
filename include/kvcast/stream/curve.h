// The security of ZeroMQ sockets: CurveZMQ (RFC 26) encrypts a connection and proves the keys of
// both ends.
//
// A publisher is always the CURVE server, also if a subscriber binds. Its subscribers are CURVE
// clients. A server has a secret key and a list of the clients that it admits. A client has a key
// pair of its own, and the public key of its server. Without a CurveServer or CurveClient, a socket
// is not encrypted and not authenticated.
//
// A key is written in Z85 (RFC 32): 40 characters for 32 bytes.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "kvcast/core/status.h"

namespace kvcast {

struct CurveKeyPair {
  std::string public_key;  // Z85
  std::string secret_key;  // Z85

  // kUnavailable: libzmq is built without CURVE.
  static Result<CurveKeyPair> Generate();
  // Reads the secret key from a file, and computes the public key. Errors (the message names
  // the file, never its content): kInvalidArgument if the file cannot be read, if users other than
  // the owner have access to it, or if its content is not one line with one key; kUnavailable if
  // libzmq is built without CURVE.
  static Result<CurveKeyPair> Load(const std::string& path);
  // As Load, but reads the key from `text`, the content of a key file. Errors do not name a file.
  static Result<CurveKeyPair> Parse(std::string_view text);
};

// kInvalidArgument: `key` is not a key in Z85. The message does not contain the key.
Status CheckCurveKey(std::string_view key);

// The requests that a client may make.
enum class CurveRole : uint8_t {
  kSubscribe,  // receive the live stream of a publisher or of a relay
  kReplay,     // request a replay of batches, and the status and challenges of a publisher
  kSnapshot,   // request snapshots, and the status and challenges of a publisher
};

// The clients of a server, by public key. Thread-safe.
//
// A file has one line for each client: ROLE[,ROLE]... PUBLIC-KEY [NAME]. ROLE is subscribe, replay
// or snapshot. Empty lines and lines that begin with # are ignored. If several lines have the same
// key, the client has the roles of all these lines. A server reads the file again every
// AccessList::kRefreshMs.
class AccessList {
 public:
  static constexpr int64_t kRefreshMs = 250;
  static constexpr size_t kMaxFileBytes = 1 << 20;

  // kInvalidArgument: the file is missing, cannot be read or has more than kMaxFileBytes, or a line
  // is wrong. The message names the file and the line.
  static Result<std::shared_ptr<AccessList>> Load(const std::string& path);

  ~AccessList();

  bool Allows(CurveRole role, std::string_view public_key) const;
  // Reads the file again. Errors: as for Load. After an error, the list does not change, and the
  // failure is counted.
  Status Refresh();
  uint64_t failed_refreshes() const;

 private:
  class Impl;
  explicit AccessList(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

// An event of a CURVE server, for its operator.
struct CurveNotice {
  enum class Kind : uint8_t {
    kRefused,     // a connection was refused
    kRevoked,     // clients lost their last role; all connections of the socket end
    kListFailed,  // the AccessList could not be read again
  };
  Kind kind = Kind::kRefused;
  std::string_view socket;  // "live" or "replay"
  // kRefused: the address of the peer. Empty if the peer proved no key, because libzmq does not
  // give the address then.
  std::string_view peer;
  // kRefused: no_key, wrong_server_key, not_allowed or broken; see RefusedConnections. kListFailed:
  // the file, and the error.
  std::string_view reason;
  uint64_t clients = 0;  // kRevoked: the number of keys that lost their last role
};

struct CurveServer {
  CurveKeyPair keys;
  std::shared_ptr<AccessList> clients;  // must not be nullptr
  // The library calls this function on one of its threads, while it holds a lock. The function must
  // not block, and must not call the library. The texts are valid only during the call. Empty:
  // nothing is called.
  std::function<void(const CurveNotice&)> on_notice = {};
};

struct CurveClient {
  CurveKeyPair keys;
  std::string server_key;  // the server's public key
};

// Connections that a CURVE server did not accept, by the reason.
struct RefusedConnections {
  uint64_t no_key = 0;            // the peer does not use CURVE
  uint64_t wrong_server_key = 0;  // the peer has a wrong public key of this server
  uint64_t not_allowed = 0;       // the key of the peer does not have the role
  // The connection ended, or was not ZMTP, before a key was seen. A peer without a key is counted
  // here if it closes the connection before the server has read its greeting.
  uint64_t broken = 0;

  uint64_t total() const { return no_key + wrong_server_key + not_allowed + broken; }
};

}  // namespace kvcast
