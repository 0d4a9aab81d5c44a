// RequestReader: reads requests from bytes with the parser of Boost.Beast, within limits.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/beast/core/flat_buffer.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "src/http/http_server.h"

namespace kvcast {

// Reads the requests of one connection, one after the other. A body must have a Content-Length or
// be chunked. Input that two parsers could read as different requests is refused, even if Beast
// accepts the input. The time is linear in the number of bytes. Thread-compatible.
class RequestReader {
 public:
  // Returns the maximum body size, in bytes, of this request. The reader calls it once per request,
  // when the head is complete.
  using BodyBound = std::function<size_t(const HttpRequest& head)>;

  explicit RequestReader(const HttpLimits& limits, BodyBound body_bound = {});
  ~RequestReader();

  enum class State : uint8_t {
    kHead,      // the head is not complete; more bytes are needed
    kBody,      // the body is not complete; more bytes are needed
    kComplete,  // the request is complete; call Take()
    kBad,       // error() is the answer; later bytes cannot be parsed
  };
  // Removes the bytes of this request from the front of `input`.
  State Read(boost::beast::flat_buffer& input);
  State state() const { return state_; }
  // True from the first byte of a request until Take or an error. Empty lines before a request do
  // not count.
  bool has_begun() const { return parser_ != nullptr; }
  // Memory of the request, in bytes, without the bytes that are still in the input.
  size_t held_bytes() const;
  // True: the client waits for "100 Continue" before it sends the body. The function returns true
  // at most once per request.
  bool TakeAwaitsContinue() { return std::exchange(awaits_continue_, false); }
  const HttpReply& error() const { return error_; }
  // Returns the request. After this call, the next request may be read. REQUIRES: kComplete.
  HttpRequest Take();
  // Frees all held bytes. The caller must close the connection.
  void Drop();

 private:
  class Parser;

  bool SkipEmptyLines(boost::beast::flat_buffer& input);
  // Counts the bytes of the head in `input` that were not counted before.
  void CountHead(const boost::beast::flat_buffer& input);
  State Fail(int status, const std::string& text);

  const HttpLimits limits_;
  const BodyBound body_bound_;
  State state_ = State::kHead;
  std::unique_ptr<Parser> parser_;  // nullptr: kBad, or no byte of the next request has arrived
  size_t head_bytes_ = 0;           // of this request
  size_t counted_ = 0;              // bytes at the front of the input that were counted
  size_t end_matched_ = 0;          // the counted bytes end with this number of bytes of "\r\n\r\n"
  int empty_lines_ = 0;             // before this request
  HttpReply error_;
  bool awaits_continue_ = false;
};

}  // namespace kvcast
