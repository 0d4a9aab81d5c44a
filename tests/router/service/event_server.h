// EventServer: the HTTP server of an engine whose events the router polls.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <httplib.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

namespace kvcast::router {

// POST /kv_cache_events returns the queued events and removes them from the queue. With `with_get`,
// GET returns and removes the events, and POST gets status 405.
class EventServer {
 public:
  explicit EventServer(bool with_get = false) {
    const auto take = [this](const httplib::Request&, httplib::Response& reply) {
      const std::lock_guard<std::mutex> lock(mutex_);
      ++polls_;
      polled_.notify_all();
      if (status_ != 200) {
        reply.status = status_;
        return;
      }
      nlohmann::json events = nlohmann::json::array();
      for (const nlohmann::json& list : lists_)
        events.insert(events.end(), list.begin(), list.end());
      lists_.clear();
      reply.set_content(events.dump(), "application/json");
    };
    if (with_get) {
      server_.Get("/kv_cache_events", take);
      server_.Post("/kv_cache_events",
                   [](const httplib::Request&, httplib::Response& reply) { reply.status = 405; });
    } else {
      server_.Post("/kv_cache_events", take);
    }
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
  }
  ~EventServer() {
    server_.stop();
    thread_.join();
  }
  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(port_) + "/kv_cache_events";
  }
  void Queue(const std::string& json) {
    const std::lock_guard<std::mutex> lock(mutex_);
    lists_.push_back(nlohmann::json::parse(json));
  }
  void AnswerWith(int status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    status_ = status;
  }
  int polls() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return polls_;
  }
  // Waits until there were at least `polls` polls. Returns false after a minute.
  bool AwaitPolls(int polls) const {
    std::unique_lock<std::mutex> lock(mutex_);
    return polled_.wait_for(lock, std::chrono::minutes(1), [&] { return polls_ >= polls; });
  }

 private:
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
  mutable std::mutex mutex_;
  mutable std::condition_variable polled_;
  std::deque<nlohmann::json> lists_;
  int status_ = 200;
  int polls_ = 0;
};

}  // namespace kvcast::router
