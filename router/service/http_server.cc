// SPDX-License-Identifier: Apache-2.0
#include "router/service/http_server.h"

#include <httplib.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

namespace kvcast::router {
namespace {

constexpr time_t kIoTimeoutSeconds = 5;
constexpr time_t kKeepAliveSeconds = 5;
constexpr size_t kRequestsPerConnection = 1000;

// Of the answers that the server itself gives.
std::string StatusText(int status) {
  if (status == 404) return "no such path or method";
  if (status == 413) return "body: too long";
  return status < 500 ? "bad request" : "internal error";
}

void Send(const HttpReply& reply, httplib::Response& response) {
  response.status = reply.status;
  response.set_content(reply.body, reply.content_type);
}

// The library's default also sets SO_REUSEPORT, which lets a second server take a port in use.
void SetSocketOptions(socket_t socket) {
  const int yes = 1;
  setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
}

// Reads the body as it is. The library's own reading would take a body without a content type for
// a form and limit it to 8 KiB. The length is counted here as well, because not every release of
// the library bounds chunked bodies.
void HandlePost(const HttpRoute& route, size_t max_body_bytes, const httplib::Request& request,
                httplib::Response& response, const httplib::ContentReader& reader) {
  if (request.is_multipart_form_data()) {
    return Send(HttpError(415, "multipart bodies are not supported"), response);
  }
  std::string body;
  bool too_long = false;
  const bool complete = reader([&](const char* data, size_t size) {
    too_long = too_long || body.size() + size > max_body_bytes;
    if (!too_long) body.append(data, size);
    return !too_long;
  });
  if (too_long || response.status == 413) {
    return Send(HttpError(413, "body: longer than " + std::to_string(max_body_bytes) + " bytes"),
                response);
  }
  if (!complete) return Send(HttpError(400, "body: incomplete"), response);
  Send(route.handler(body), response);
}

}  // namespace

HttpReply HttpError(int status, const std::string& text) {
  const nlohmann::json body = {{"error", text}};
  return {status, body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n"};
}

struct HttpServer::Impl {
  void Configure(const HttpOptions& options) {
    const auto threads = static_cast<size_t>(options.threads);
    server.new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
    server.set_socket_options(SetSocketOptions);
    server.set_tcp_nodelay(true);
    server.set_payload_max_length(options.max_body_bytes);
    server.set_read_timeout(kIoTimeoutSeconds);
    server.set_write_timeout(kIoTimeoutSeconds);
    server.set_keep_alive_timeout(kKeepAliveSeconds);
    server.set_keep_alive_max_count(kRequestsPerConnection);
    server.set_error_handler([](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty()) return;
      Send(HttpError(response.status, StatusText(response.status)), response);
    });
    server.set_exception_handler(
        [](const httplib::Request&, httplib::Response& response, std::exception_ptr) {
          Send(HttpError(500, "internal error"), response);
        });
  }

  void AddRoute(HttpRoute route, size_t max_body_bytes) {
    const std::string path = route.path;
    if (route.method == HttpRoute::Method::kGet) {
      server.Get(path, [route = std::move(route)](const httplib::Request&, httplib::Response& out) {
        Send(route.handler(""), out);
      });
      return;
    }
    server.Post(path, [route = std::move(route), max_body_bytes](
                          const httplib::Request& request, httplib::Response& out,
                          const httplib::ContentReader& reader) {
      HandlePost(route, max_body_bytes, request, out, reader);
    });
  }

  bool Bind(const HttpOptions& options) {
    if (options.port != 0) {
      port = options.port;
      return server.bind_to_port(options.address, options.port);
    }
    port = server.bind_to_any_port(options.address);
    return port > 0;
  }

  // stop() is lost on a server whose loop has not begun, so that Start waits for it.
  bool Listen() {
    listener = std::thread([this] {
      server.listen_after_bind();
      ended = true;
    });
    while (!server.is_running() && !ended) std::this_thread::yield();
    return !ended;
  }

  httplib::Server server;
  std::thread listener;
  std::atomic<bool> ended{false};
  int port = 0;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { Stop(); }

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                      std::vector<HttpRoute> routes) {
  if (options.threads < 1 || options.port < 0 || options.port > 65535) {
    return Status(StatusCode::kInvalidArgument, "http: port or threads out of range");
  }
  auto impl = std::make_unique<Impl>();
  impl->Configure(options);
  for (HttpRoute& route : routes) impl->AddRoute(std::move(route), options.max_body_bytes);
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(impl)));
  if (!server->impl_->Bind(options) || !server->impl_->Listen()) {
    return Status(StatusCode::kUnavailable,
                  "http: cannot listen on " + options.address + ":" + std::to_string(options.port));
  }
  return server;
}

int HttpServer::port() const { return impl_->port; }

void HttpServer::Stop() {
  impl_->server.stop();
  if (impl_->listener.joinable()) impl_->listener.join();
}

}  // namespace kvcast::router
