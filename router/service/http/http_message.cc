// SPDX-License-Identifier: Apache-2.0
#include "router/service/http/http_message.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace kvcast::router {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
constexpr std::string_view kHeadEnd = "\r\n\r\n";
constexpr size_t kMaxChunkLine = 128;

const char* ReasonPhrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return status < 500 ? "Error" : "Internal Server Error";
  }
}

char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), Lower);
  return lower;
}

std::string_view Trim(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

bool IsTokenChar(char c) {
  return (c >= '0' && c <= '9') || (Lower(c) >= 'a' && Lower(c) <= 'z') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenChar);
}

std::optional<size_t> ParseUnsigned(std::string_view digits, int base) {
  size_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, base);
  if (digits.empty() || error != std::errc() || stop != end) return std::nullopt;
  return value;
}

// nullopt: a broken escape.
std::optional<std::string> PercentDecoded(std::string_view text, bool plus_is_blank) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      const auto byte =
          i + 2 < text.size() ? ParseUnsigned(text.substr(i + 1, 2), 16) : std::nullopt;
      if (!byte) return std::nullopt;
      decoded += static_cast<char>(*byte);
      i += 2;
    } else {
      decoded += plus_is_blank && text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

bool ParseQuery(std::string_view text, std::map<std::string, std::string>& query) {
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(pair.size() + 1, text.size()));
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    auto name = PercentDecoded(pair.substr(0, equals), true);
    auto value = PercentDecoded(pair.substr(std::min(equals + 1, pair.size())), true);
    if (!name || !value) return false;
    query[std::move(*name)] = std::move(*value);
  }
  return true;
}

}  // namespace

HttpReply HttpError(int status, const std::string& text) {
  const nlohmann::json body = {{"error", text}};
  return {.status = status,
          .body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
}

std::string RenderChunk(std::string_view piece) {
  char size[20];
  const auto end = std::to_chars(size, size + sizeof(size), piece.size(), 16).ptr;
  std::string chunk(size, end);
  chunk += kLineEnd;
  chunk += piece;
  return chunk += kLineEnd;
}

std::string RenderReply(const HttpReply& reply, bool keep_alive, bool head_only,
                        bool takes_chunks) {
  const bool pieces = reply.next_piece != nullptr;
  std::string text = "HTTP/1.1 " + std::to_string(reply.status) + " " + ReasonPhrase(reply.status);
  if (!pieces) text += "\r\nContent-Length: " + std::to_string(reply.body.size());
  if (pieces && takes_chunks) text += "\r\nTransfer-Encoding: chunked";
  text += "\r\nContent-Type: " + reply.content_type;
  for (const auto& [name, value] : reply.headers) text += "\r\n" + name + ": " + value;
  text += "\r\nX-Content-Type-Options: nosniff";
  text += keep_alive ? "\r\nConnection: keep-alive\r\n\r\n" : "\r\nConnection: close\r\n\r\n";
  if (head_only) return text;
  const bool chunk = pieces && takes_chunks && !reply.body.empty();
  return text += chunk ? RenderChunk(reply.body) : reply.body;
}

std::string_view HttpRequest::Header(const std::string& lower_case_name) const {
  const auto it = headers.find(lower_case_name);
  return it == headers.end() ? std::string_view() : std::string_view(it->second);
}

RequestReader::State RequestReader::Read(std::string& input) {
  if (state_ == State::kHead) state_ = ReadHead(input);
  if (state_ == State::kBody) state_ = chunked_ ? ReadChunks(input) : ReadBody(input);
  return state_;
}

HttpRequest RequestReader::Take() {
  state_ = State::kHead;
  scanned_ = 0;
  return std::exchange(request_, {});
}

RequestReader::State RequestReader::Fail(int status, const std::string& text) {
  error_ = HttpError(status, text);
  request_.body = {};
  return state_ = State::kBad;
}

RequestReader::State RequestReader::ReadHead(std::string& input) {
  // Empty lines before a request are left over from sloppy clients.
  while (input.starts_with(kLineEnd)) input.erase(0, kLineEnd.size());
  const size_t end = input.find(kHeadEnd, scanned_);
  if (std::min(end, input.size()) > limits_.max_head_bytes) {
    return Fail(431, "head: longer than " + std::to_string(limits_.max_head_bytes) + " bytes");
  }
  if (end == std::string::npos) {
    scanned_ = input.size() < kHeadEnd.size() ? 0 : input.size() - kHeadEnd.size() + 1;
    return State::kHead;
  }
  std::string_view head = std::string_view(input).substr(0, end);
  bool first = true;
  bool good = true;
  while (good && (first || !head.empty())) {
    const std::string_view line = head.substr(0, head.find(kLineEnd));
    head.remove_prefix(std::min(line.size() + kLineEnd.size(), head.size()));
    good = first ? ParseRequestLine(line) : ParseHeader(line);
    first = false;
  }
  input.erase(0, end + kHeadEnd.size());
  if (!good) return state_ == State::kBad ? state_ : Fail(400, "head: not HTTP/1.1");
  return Begin();
}

bool RequestReader::ParseRequestLine(std::string_view line) {
  const size_t method_end = line.find(' ');
  const size_t target_end = line.rfind(' ');
  if (method_end == std::string_view::npos || target_end <= method_end) return false;
  request_.method = line.substr(0, method_end);
  const std::string_view version = line.substr(target_end + 1);
  if (!IsToken(request_.method) || (version != "HTTP/1.1" && version != "HTTP/1.0")) return false;
  request_.keep_alive = version == "HTTP/1.1";
  request_.takes_chunks = request_.keep_alive;
  std::string_view target = line.substr(method_end + 1, target_end - method_end - 1);
  if (target.empty() || target.find_first_of(" \t\r\n") != std::string_view::npos) return false;
  const size_t mark = std::min(target.find('?'), target.size());
  auto path = PercentDecoded(target.substr(0, mark), false);
  if (!path || !ParseQuery(target.substr(std::min(mark + 1, target.size())), request_.query)) {
    Fail(400, "path: broken percent escape");
    return false;
  }
  request_.path = std::move(*path);
  return true;
}

bool RequestReader::ParseHeader(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) return false;
  const std::string_view value = Trim(line.substr(colon + 1));
  if (value.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos) return false;
  const auto [it, added] =
      request_.headers.emplace(LowerCase(line.substr(0, colon)), std::string(value));
  if (added) return true;
  if (it->first == "content-length" || it->first == "host" || it->first == "transfer-encoding") {
    Fail(400, it->first + ": sent twice");
    return false;
  }
  it->second += ", " + std::string(value);
  return true;
}

RequestReader::State RequestReader::Begin() {
  const std::string connection = LowerCase(request_.Header("connection"));
  if (connection.find("close") != std::string::npos) request_.keep_alive = false;
  if (connection.find("keep-alive") != std::string::npos) request_.keep_alive = true;
  awaits_continue_ = LowerCase(request_.Header("expect")) == "100-continue";
  return BeginBody();
}

RequestReader::State RequestReader::BeginBody() {
  const auto length = request_.headers.find("content-length");
  const auto coding = request_.headers.find("transfer-encoding");
  chunked_ = coding != request_.headers.end();
  if (chunked_ && length != request_.headers.end()) {
    return Fail(400, "body: both Content-Length and Transfer-Encoding");
  }
  if (chunked_ && LowerCase(coding->second) != "chunked") {
    return Fail(400, "body: transfer encoding other than chunked");
  }
  body_left_ = 0;
  trailer_bytes_ = 0;
  part_ = ChunkPart::kSize;
  if (length != request_.headers.end()) {
    const auto bytes = ParseUnsigned(length->second, 10);
    if (!bytes) return Fail(400, "Content-Length: not a number");
    body_left_ = *bytes;
  }
  if (body_left_ > limits_.max_body_bytes) {
    return Fail(413, "body: longer than " + std::to_string(limits_.max_body_bytes) + " bytes");
  }
  if (!chunked_ && body_left_ == 0) awaits_continue_ = false;
  return !chunked_ && body_left_ == 0 ? State::kComplete : State::kBody;
}

RequestReader::State RequestReader::ReadBody(std::string& input) {
  const size_t taken = std::min(body_left_, input.size());
  if (request_.body.empty() && taken == input.size()) {
    request_.body.swap(input);
    input.clear();
  } else {
    request_.body.append(input, 0, taken);
    input.erase(0, taken);
  }
  body_left_ -= taken;
  return body_left_ == 0 ? State::kComplete : State::kBody;
}

std::optional<std::string> RequestReader::TakeLine(std::string& input) {
  const size_t end = input.find(kLineEnd);
  if (std::min(end, input.size()) > kMaxChunkLine) {
    Fail(400, "body: broken chunk");
    return std::nullopt;
  }
  if (end == std::string::npos) return std::nullopt;
  std::string line = input.substr(0, end);
  input.erase(0, end + kLineEnd.size());
  return line;
}

RequestReader::State RequestReader::ReadChunks(std::string& input) {
  while (true) {
    if (part_ == ChunkPart::kData) {
      const size_t taken = std::min(body_left_, input.size());
      request_.body.append(input, 0, taken);
      input.erase(0, taken);
      body_left_ -= taken;
      if (body_left_ > 0) return State::kBody;
      part_ = ChunkPart::kDataEnd;
    }
    const std::optional<std::string> line = TakeLine(input);
    if (!line) return state_ == State::kBad ? state_ : State::kBody;
    if (part_ == ChunkPart::kTrailer) {
      if (line->empty()) return State::kComplete;
      trailer_bytes_ += line->size();
      if (trailer_bytes_ > limits_.max_head_bytes) return Fail(431, "trailer: too long");
      continue;
    }
    if (part_ == ChunkPart::kDataEnd) {
      if (!line->empty()) return Fail(400, "body: broken chunk");
      part_ = ChunkPart::kSize;
      continue;
    }
    const auto size = ParseUnsigned(Trim(std::string_view(*line).substr(0, line->find(';'))), 16);
    if (!size) return Fail(400, "body: broken chunk");
    if (*size > limits_.max_body_bytes - request_.body.size()) {
      return Fail(413, "body: longer than " + std::to_string(limits_.max_body_bytes) + " bytes");
    }
    body_left_ = *size;
    part_ = *size == 0 ? ChunkPart::kTrailer : ChunkPart::kData;
  }
}

}  // namespace kvcast::router
