// SPDX-License-Identifier: Apache-2.0
#include "src/http/request_reader.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <limits>
#include <string>

#include "src/http/lower_case.h"
#include "src/http/request_target.h"

namespace kvcast {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using beast::error_code;
using Text = beast::string_view;

std::string_view View(Text text) { return {text.data(), text.size()}; }

// A chunked body ends with at least these bytes: "0", a line end, and an empty line. If Beast has
// seen the first line end in an earlier call, Beast asserts that all these bytes have arrived.
constexpr size_t kLastChunkBytes = 5;

constexpr int kMaxEmptyLines = 16;  // before a request
constexpr size_t kMaxFields = 128;  // header lines of a request
// Memory of a header or of a member of the query, without the bytes of long names and values: a
// node of a map with two strings.
constexpr size_t kPairBytes = 112;
// A small chunk takes as long as a large one. After kFreeChunks chunks, the chunks of a body must
// have at least kMinMeanChunk bytes on average.
constexpr size_t kFreeChunks = 1024;
constexpr size_t kMinMeanChunk = 16;

bool IsControl(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

}  // namespace

// Adds the checks that Beast does not make.
class RequestReader::Parser final : public http::basic_parser<true> {
 public:
  Parser(const HttpLimits& limits, const BodyBound& body_bound)
      : body_bound_(body_bound), most_(limits.max_body_bytes) {
    eager(true);
    // RequestReader counts the bytes of the head. The count of Beast depends on the pieces in which
    // the head arrives.
    header_limit(std::numeric_limits<uint32_t>::max());
    body_limit(most_);
  }

  HttpRequest request;
  bool awaits_continue = false;
  int status = 0;  // status of the refusal; 0: none
  std::string refusal;

  size_t pairs() const { return request.headers.size() + request.query.size(); }

  void Explain(const error_code& error) {
    if (status != 0) return;
    status = 400;
    if (error == http::error::body_limit) {
      status = 413;
      refusal = "body: longer than " + std::to_string(most_) + " bytes";
    } else if (error == http::error::bad_content_length) {
      refusal = "Content-Length: must be one decimal number";
    } else {
      refusal = is_header_done() ? "body: invalid chunked encoding"
                                 : "head: not a valid request of HTTP/1.0 or HTTP/1.1";
    }
  }

 private:
  void Refuse(int code, std::string text, error_code& error) {
    status = code;
    refusal = std::move(text);
    error = http::error::bad_field;
  }

  void on_request_impl(http::verb, Text method, Text target, int version,
                       error_code& error) override {
    if (version != 10 && version != 11)
      return Refuse(400, "head: not a valid request of HTTP/1.0 or HTTP/1.1", error);
    request.method = View(method);
    request.takes_chunks = version == 11;
    const char* const why = ReadTarget(View(target), request);
    if (why != nullptr) Refuse(400, why, error);
  }
  void on_response_impl(int, Text, int, error_code&) override {}

  void on_field_impl(http::field field, Text name, Text value, error_code& error) override {
    if (is_header_done()) return;  // a trailer
    if (++fields_ > kMaxFields) return Refuse(431, "head: more than 128 headers", error);
    const auto [it, added] =
        request.headers.emplace(LowerCase(View(name)), std::string(View(value)));
    const bool once = field == http::field::content_length || field == http::field::host ||
                      field == http::field::transfer_encoding;
    if (!added && once) return Refuse(400, it->first + ": sent twice", error);
    if (!added) it->second.append(", ").append(View(value));
    const bool digits = View(value).find_first_not_of("0123456789") == std::string_view::npos;
    if (field == http::field::content_length && !digits) {
      return Refuse(400, "Content-Length: must be one decimal number", error);
    }
    if (field == http::field::transfer_encoding && !beast::iequals(value, "chunked")) {
      return Refuse(400, "body: transfer encoding other than chunked", error);
    }
    if (field == http::field::expect) awaits_continue = beast::iequals(value, "100-continue");
  }

  void on_header_impl(error_code& error) override {
    if (request.takes_chunks && !request.headers.contains("host")) {
      return Refuse(400, "host: a request needs a Host header", error);
    }
    if (!request.takes_chunks && chunked()) {
      return Refuse(400, "body: chunked bodies need HTTP/1.1", error);
    }
    request.keep_alive = keep_alive();
    const uint64_t length = content_length().value_or(0);
    awaits_continue = awaits_continue && (chunked() || length > 0);
    if (body_bound_) most_ = std::min(most_, body_bound_(request));
    body_limit(most_);
    if (length > most_) error = http::error::body_limit;
  }

  // Without the reservation, a growing body would be moved again and again. Memory that is only
  // reserved is not resident.
  void on_body_init_impl(const boost::optional<uint64_t>& length, error_code&) override {
    if (length && *length <= most_) request.body.reserve(*length);
  }
  size_t on_body_impl(Text body, error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_chunk_header_impl(uint64_t size, Text extension, error_code& error) override {
    const bool small = chunks_ >= kFreeChunks && request.body.size() < chunks_ * kMinMeanChunk;
    if (small && size > 0) return Refuse(400, "body: too many small chunks", error);
    ++chunks_;
    // Beast accepts any byte in a quoted extension, even line ends.
    if (std::ranges::any_of(extension, IsControl)) error = http::error::bad_chunk_extension;
  }
  size_t on_chunk_body_impl(uint64_t, Text body, error_code&) override {
    request.body.append(body.data(), body.size());
    return body.size();
  }
  void on_finish_impl(error_code&) override {}

  const BodyBound& body_bound_;
  size_t most_;
  size_t fields_ = 0;
  size_t chunks_ = 0;  // before the current chunk
};

RequestReader::RequestReader(const HttpLimits& limits, BodyBound body_bound)
    : limits_(limits), body_bound_(std::move(body_bound)) {}
RequestReader::~RequestReader() = default;

size_t RequestReader::held_bytes() const {
  if (!parser_) return 0;
  return head_bytes_ - counted_ + kPairBytes * parser_->pairs() + parser_->request.body.size();
}

RequestReader::State RequestReader::Fail(int status, const std::string& text) {
  error_ = HttpError(status, text);
  parser_ = nullptr;
  return state_ = State::kBad;
}

void RequestReader::Drop() {
  parser_ = nullptr;
  state_ = State::kBad;
}

HttpRequest RequestReader::Take() {
  state_ = State::kHead;
  HttpRequest request = std::move(parser_->request);
  parser_ = nullptr;
  return request;
}

// Some clients send empty lines after a request. False: there were too many.
bool RequestReader::SkipEmptyLines(beast::flat_buffer& input) {
  const std::string_view text(static_cast<const char*>(input.data().data()), input.size());
  size_t skipped = 0;
  for (; text.substr(skipped).starts_with("\r\n"); skipped += 2) {
    if (++empty_lines_ > kMaxEmptyLines) return false;
  }
  input.consume(skipped);
  return true;
}

void RequestReader::CountHead(const beast::flat_buffer& input) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  const std::string_view text(static_cast<const char*>(input.data().data()), input.size());
  while (end_matched_ < kEnd.size() && counted_ < text.size()) {
    const char c = text[counted_++];
    ++head_bytes_;
    if (c != kEnd[end_matched_]) end_matched_ = 0;
    if (c == kEnd[end_matched_]) ++end_matched_;
  }
}

RequestReader::State RequestReader::Read(beast::flat_buffer& input) {
  if (state_ == State::kBad || state_ == State::kComplete) return state_;
  if (!parser_) {
    if (!SkipEmptyLines(input)) return Fail(400, "head: too many empty lines");
    const auto* const first = static_cast<const char*>(input.data().data());
    if (input.size() == 0 || (input.size() == 1 && *first == '\r')) return state_;
    parser_ = std::make_unique<Parser>(limits_, body_bound_);
    head_bytes_ = counted_ = end_matched_ = empty_lines_ = 0;
  }
  CountHead(input);
  if (head_bytes_ > limits_.max_head_bytes) {
    return Fail(431, "head: longer than " + std::to_string(limits_.max_head_bytes) + " bytes");
  }
  const bool had_head = parser_->is_header_done();
  if (had_head && parser_->chunked() && input.size() < kLastChunkBytes) return state_;
  error_code error;
  const size_t taken = parser_->put(input.data(), error);
  input.consume(taken);
  counted_ -= std::min(counted_, taken);
  if (error && error != http::error::need_more) {
    parser_->Explain(error);
    return Fail(parser_->status, parser_->refusal);
  }
  if (!had_head && parser_->is_header_done()) awaits_continue_ = parser_->awaits_continue;
  if (parser_->is_done()) return state_ = State::kComplete;
  // After the head, bytes that the parser has not consumed are a line of a chunk, or trailers.
  if (parser_->is_header_done() && input.size() > limits_.max_head_bytes) {
    return Fail(431, "body: a chunk's line, or trailers, longer than " +
                         std::to_string(limits_.max_head_bytes) + " bytes");
  }
  return state_ = parser_->is_header_done() ? State::kBody : State::kHead;
}

}  // namespace kvcast
