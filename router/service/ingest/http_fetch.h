// A minimal HTTP/1.1 client for sources that are polled. It sends one request, without TLS.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvcast/core/status.h"
#include "src/stream/net/name_resolver.h"

namespace kvcast::router {

constexpr int kHttpOk = 200;  // the status of a good answer

struct HttpUrl {
  std::string host;  // without brackets
  std::string port;
  std::string target;  // path and query; "/" if none is given
};
// Parses "http://HOST[:PORT][/PATH]". An IPv6 HOST must be in brackets. kInvalidArgument: the text
// has another form, for example https.
Result<HttpUrl> ParseHttpUrl(std::string_view text);

// Reads an answer while its bytes arrive. The body ends after Content-Length bytes, after the last
// chunk, or when the connection ends. Thread-compatible.
class HttpAnswerReader {
 public:
  explicit HttpAnswerReader(size_t body_max) : body_max_(body_max) {}

  enum class State : uint8_t { kMore, kComplete, kBad };
  State Read(std::string_view bytes);
  // Must be called when the connection has ended.
  State End();
  int status() const { return status_; }
  std::string TakeBody() { return std::move(body_); }

 private:
  State ReadHeads();
  // Reads the head of one answer. nullopt: the head was complete.
  std::optional<State> ReadHead();
  bool ReadHeader(std::string_view line);
  State ReadBody();
  State ReadChunks();

  const size_t body_max_;
  State state_ = State::kMore;
  std::string input_;  // received bytes that are not parsed yet
  std::string body_;
  bool in_body_ = false;
  bool chunked_ = false;
  int interim_ = 0;  // answers with a status below 200
  int status_ = 0;
  std::optional<uint64_t> length_;
};

enum class FetchOutcome : uint8_t {
  kAnswered,
  kUnreached,  // there was no connection, so no request was sent
  kCut,        // the request may have been handled, but no complete answer arrived
  kStopped,
};

struct FetchResult {
  FetchOutcome outcome = FetchOutcome::kUnreached;
  int status = 0;  // set for kAnswered
  std::string body;
  std::string error;  // empty for kAnswered
};

struct FetchOptions {
  std::string_view method = "GET";
  int64_t timeout_ms = 10000;          // of the whole request
  size_t body_max = size_t{64} << 20;  // bytes
  int stop_fd = -1;                    // if this descriptor becomes readable, the request stops
  // Not nullptr: one address of the host name is tried. nullptr: the calling thread looks the name
  // up, and all addresses are tried. This lookup has no time limit, and stop_fd does not stop it.
  stream::NameResolver* resolver = nullptr;
};

// Sends the request over a new connection, and blocks until the outcome is known.
FetchResult Fetch(const HttpUrl& url, const FetchOptions& options);

}  // namespace kvcast::router
