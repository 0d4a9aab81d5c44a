// SPDX-License-Identifier: Apache-2.0
#include "src/http/reply_text.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/beast/http/fields.hpp>
#include <nlohmann/json.hpp>

namespace kvcast {

namespace beast = boost::beast;
namespace http = boost::beast::http;

HttpReply HttpError(int status, const std::string& text) {
  const nlohmann::json body = {{"error", text}};
  return {.status = status,
          .body = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
}

std::string_view HttpRequest::Header(const std::string& lower_case_name) const {
  const auto it = headers.find(lower_case_name);
  return it == headers.end() ? std::string_view() : std::string_view(it->second);
}

std::string RenderChunk(std::string_view piece) {
  if (piece.empty()) return beast::buffers_to_string(http::make_chunk_last());
  return beast::buffers_to_string(
      http::make_chunk(boost::asio::const_buffer(piece.data(), piece.size())));
}

std::string RenderReply(const HttpReply& reply, bool keep_alive, bool head_only,
                        bool takes_chunks) {
  const bool pieces = reply.next_piece != nullptr;
  http::fields fields;
  if (!pieces) fields.set(http::field::content_length, std::to_string(reply.body.size()));
  if (pieces && takes_chunks) fields.set(http::field::transfer_encoding, "chunked");
  fields.set(http::field::content_type, reply.content_type);
  for (const auto& [name, value] : reply.headers) fields.insert(name, value);
  fields.set("X-Content-Type-Options", "nosniff");
  fields.set(http::field::connection, keep_alive ? "keep-alive" : "close");
  constexpr unsigned kVersion = 11;
  const http::fields::writer head(fields, kVersion, static_cast<unsigned>(reply.status));
  std::string text = beast::buffers_to_string(head.get());
  if (head_only) return text;
  const bool chunk = pieces && takes_chunks && !reply.body.empty();
  return text += chunk ? RenderChunk(reply.body) : reply.body;
}

}  // namespace kvcast
