// RequestReader: requests out of bytes, by Boost.Beast's parser, within bounds.
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

// One connection's requests, one after the other. Bodies have a Content-Length or are chunked. What
// two readers could take for different requests is refused, where Beast reads it also. Costs time
// that is linear in the bytes. Thread-compatible.
class RequestReader {
 public:
  // The most bytes of the body that this request, whose head is complete, may have.
  using BodyBound = std::function<size_t(const HttpRequest& head)>;

  explicit RequestReader(const HttpLimits& limits, BodyBound body_bound = {});
  ~RequestReader();

  enum class State : uint8_t {
    kHead,      // more is needed, the head is not complete
    kBody,      // more is needed
    kComplete,  // Take() it
    kBad,       // error() is the answer, and nothing behind it can be understood
  };
  // Takes what belongs to this request from the front of `input`.
  State Read(boost::beast::flat_buffer& input);
  State state() const { return state_; }
  size_t held_bytes() const;  // of the body
  // The client waits for "100 Continue" before it sends the body. Asked once a request.
  bool TakeAwaitsContinue() { return std::exchange(awaits_continue_, false); }
  const HttpReply& error() const { return error_; }
  // REQUIRES: kComplete. The next request may be read then.
  HttpRequest Take();
  // Frees all held bytes. The caller must close the connection.
  void Drop();

 private:
  class Parser;

  State Fail(int status, const std::string& text);

  const HttpLimits limits_;
  const BodyBound body_bound_;
  State state_ = State::kHead;
  std::unique_ptr<Parser> parser_;  // nullptr: nothing of the request is here
  HttpReply error_;
  bool awaits_continue_ = false;
};

}  // namespace kvcast
