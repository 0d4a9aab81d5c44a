// One HTTP/1.1 request as a client: what a source that is polled needs, and no more. No TLS.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvcast/core/status.h"

namespace kvcast::router {

struct HttpUrl {
  std::string host;  // without brackets
  std::string port;
  std::string target;  // path and query; "/" if none is given
};
// "http://HOST[:PORT][/PATH]", an IPv6 HOST in brackets. kInvalidArgument: anything else, https
// too.
Result<HttpUrl> ParseHttpUrl(std::string_view text);

// An answer, as its bytes come. The body ends with its Content-Length, its last chunk, or the
// connection. Thread-compatible.
class HttpAnswerReader {
 public:
  explicit HttpAnswerReader(size_t body_max) : body_max_(body_max) {}

  enum class State : uint8_t { kMore, kComplete, kBad };
  State Read(std::string_view bytes);
  // The connection has ended.
  State End();
  int status() const { return status_; }
  std::string TakeBody() { return std::move(body_); }

 private:
  State ReadHead();
  bool ReadHeader(std::string_view line);
  State ReadBody();
  State ReadChunks();

  const size_t body_max_;
  State state_ = State::kMore;
  std::string input_;  // not taken yet
  std::string body_;
  bool in_body_ = false;
  bool chunked_ = false;
  int status_ = 0;
  std::optional<uint64_t> length_;
};

enum class FetchOutcome : uint8_t {
  kAnswered,
  kUnreached,  // nothing was sent: there is no connection
  kCut,        // the request may have been handled, and no whole answer came
  kStopped,
};

struct FetchResult {
  FetchOutcome outcome = FetchOutcome::kUnreached;
  int status = 0;  // kAnswered
  std::string body;
  std::string error;  // else
};

struct FetchOptions {
  std::string_view method = "GET";
  int64_t timeout_ms = 10000;  // of the whole request
  size_t body_max = size_t{64} << 20;
  int stop_fd = -1;  // readable: give up
};

// Over a connection of its own.
FetchResult Fetch(const HttpUrl& url, const FetchOptions& options);

}  // namespace kvcast::router
