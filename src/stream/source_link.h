// SourceLink: the sockets of one followed source, and the Source that they feed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kvcast/subscriber.h"
#include "src/stream/socket.h"
#include "src/stream/source.h"

namespace kvcast::stream {

// Opened on any thread, then used by one.
class SourceLink {
 public:
  // Subscribes and connects. `sink` must outlive the link.
  static Result<std::unique_ptr<SourceLink>> Open(const SourceConfig& source,
                                                  const SubscriberConfig& config,
                                                  std::shared_ptr<Context> context,
                                                  const SubscriberSink& sink);
  SourceLink(const SourceLink&) = delete;
  SourceLink& operator=(const SourceLink&) = delete;

  WorkerId worker() const { return worker_; }
  int64_t deadline_ms() const { return source_.deadline_ms(); }
  SourceStatus status() const { return source_.status(); }

  void AddPollItems(std::vector<zmq_pollitem_t>& items) const;
  // Handles a bounded number of waiting messages and what is due. Never waits.
  void Work(int64_t now_ms);
  // The sink is not called any more.
  void Mute() { muted_ = true; }

 private:
  SourceLink(const SourceConfig& source, const SubscriberConfig& config,
             std::shared_ptr<Context> context, const SubscriberSink& sink);
  Status Connect(const SourceConfig& source, const SubscriberConfig& config);
  SourceHooks Hooks(const SubscriberSink& sink);

  void DrainMonitor(int64_t now_ms);
  void DrainLive(int64_t now_ms);
  void DrainReplay(int64_t now_ms);
  void RequestReplay(uint64_t start);

  const WorkerId worker_;
  const std::string replay_endpoint_;
  const std::shared_ptr<Context> context_;
  Source source_;
  bool muted_ = false;
  bool connected_at_once_ = false;  // inproc: no monitor events, and never a reconnect
  Multipart message_;
  Socket sub_;
  Socket monitor_;  // of sub_
  Socket replay_;   // one DEALER per request, so that late replies to another one cannot mix in
};

}  // namespace kvcast::stream
