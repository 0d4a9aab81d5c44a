// HTTP/1.1 messages: a reader that takes requests as they come, piece by piece, within bounds.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvcast::router {

struct HttpReply {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;  // besides those of every reply
  // Not empty: what goes on behind `body`, piece by piece, each asked for when the one before has
  // been sent. An empty piece is the end.
  std::function<std::string()> next_piece;
};

// {"error": "<text>"} with this status.
HttpReply HttpError(int status, const std::string& text);

// The bytes to send. `head_only`: all but the body, as HEAD wants it. Of a reply in pieces: up to
// the end of `body`; what comes behind it is in chunks if the client takes those, else up to the
// end of the connection.
std::string RenderReply(const HttpReply& reply, bool keep_alive, bool head_only = false,
                        bool takes_chunks = true);
std::string RenderChunk(std::string_view piece);  // of an empty piece: the end

struct HttpRequest {
  std::string method;                          // as sent: "GET", "POST", ...
  std::string path;                            // decoded, without the query
  std::map<std::string, std::string> query;    // decoded; the last of equal names
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool keep_alive = true;
  bool takes_chunks = true;  // HTTP/1.1

  // Empty: not sent.
  std::string_view Header(const std::string& lower_case_name) const;
};

struct HttpLimits {
  size_t max_head_bytes = 16 << 10;  // request line and headers; longer: 431
  size_t max_body_bytes = 16 << 20;  // longer: 413
};

// One connection's requests, one after the other. Bodies have a Content-Length or are chunked. What
// two readers could take for different requests (both lengths, two lengths, bare line ends in the
// head) is refused. Thread-compatible.
class RequestReader {
 public:
  explicit RequestReader(const HttpLimits& limits) : limits_(limits) {}

  enum class State : uint8_t {
    kHead,      // more is needed, the head is not complete
    kBody,      // more is needed
    kComplete,  // Take() it
    kBad,       // error() is the answer, and nothing behind it can be understood
  };
  // Takes what belongs to this request from the front of `input`.
  State Read(std::string& input);
  State state() const { return state_; }
  // Bytes of the request held, the body's included.
  size_t held_bytes() const { return request_.body.size(); }
  // The client waits for "100 Continue" before it sends the body. Asked once a request.
  bool TakeAwaitsContinue() { return std::exchange(awaits_continue_, false); }
  const HttpRequest& request() const { return request_; }
  const HttpReply& error() const { return error_; }
  // REQUIRES: kComplete. The next request may be read then.
  HttpRequest Take();

 private:
  enum class ChunkPart : uint8_t { kSize, kData, kDataEnd, kTrailer };

  State Fail(int status, const std::string& text);
  State ReadHead(std::string& input);
  State ReadBody(std::string& input);
  State ReadChunks(std::string& input);
  // nullopt: not complete yet.
  std::optional<std::string> TakeLine(std::string& input);
  bool ParseRequestLine(std::string_view line);
  bool ParseHeader(std::string_view line);
  State Begin();
  State BeginBody();

  const HttpLimits limits_;
  State state_ = State::kHead;
  HttpRequest request_;
  HttpReply error_;
  size_t scanned_ = 0;    // of the input, without the head's end
  size_t body_left_ = 0;  // of the body, or of the chunk
  bool chunked_ = false;
  ChunkPart part_ = ChunkPart::kSize;
  size_t trailer_bytes_ = 0;
  bool awaits_continue_ = false;
};

}  // namespace kvcast::router
