// NatsLink: one connection to a NATS server. A connection that has ended is never established
// again. This file also defines owners of libnats objects.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nats/nats.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "src/base/mutex.h"
#include "src/nats/nats_log.h"

namespace kvcast::nats {

template <auto kDestroy>
struct Destroyer {
  template <typename Object>
  void operator()(Object* object) const {
    kDestroy(object);
  }
};
using Message = std::unique_ptr<natsMsg, Destroyer<natsMsg_Destroy>>;
using JetStream = std::unique_ptr<jsCtx, Destroyer<jsCtx_Destroy>>;
using StreamInfo = std::unique_ptr<jsStreamInfo, Destroyer<jsStreamInfo_Destroy>>;
using MetaData = std::unique_ptr<jsMsgMetaData, Destroyer<jsMsgMetaData_Destroy>>;
using Options = std::unique_ptr<natsOptions, Destroyer<natsOptions_Destroy>>;

// The text of `status` in one line. If `status` is the latest libnats error of this thread, the
// text includes the cause.
std::string ErrorText(natsStatus status);

// Thread-safe, as libnats is. Each subscription owns the link too, because a subscription must end
// before its link is destroyed.
class NatsLink {
 public:
  explicit NatsLink(natsConnection* connection) : connection_(connection) {}
  NatsLink(const NatsLink&) = delete;
  NatsLink& operator=(const NatsLink&) = delete;
  ~NatsLink();

  natsConnection* get() const { return connection_; }
  bool is_up() const { return natsConnection_Status(connection_) == NATS_CONN_STATUS_CONNECTED; }
  // Ends the subscription. Waits until the thread of the connection has handled all earlier
  // messages.
  void End(natsSubscription* subscription);

 private:
  natsConnection* const connection_;
  Mutex mutex_;
  std::vector<natsSubscription*> ended_ KV_GUARDED_BY(mutex_);  // destroyed with the link
};

struct SubscriptionEnd {
  std::shared_ptr<NatsLink> link;
  void operator()(natsSubscription* subscription) const { link->End(subscription); }
};
using Subscription = std::unique_ptr<natsSubscription, SubscriptionEnd>;

class NatsConnectionImpl final : public NatsConnection {
 public:
  struct Secrets {
    std::string user;
    std::string password;
    std::string token;
  };
  NatsConnectionImpl(NatsOptions options, std::vector<std::string> urls, Secrets secrets)
      : options_(std::move(options)), urls_(std::move(urls)), secrets_(std::move(secrets)) {}

  // The present connection, or a new one. May block for some seconds.
  Result<std::shared_ptr<NatsLink>> Get();

 private:
  Result<std::shared_ptr<NatsLink>> Connect(const std::string& url) const;
  natsStatus Configure(natsOptions* options, const std::string& url) const;

  const NatsOptions options_;
  const std::vector<std::string> urls_;
  const Secrets secrets_;
  Mutex mutex_;
  std::shared_ptr<NatsLink> link_ KV_GUARDED_BY(mutex_);
  Status error_ KV_GUARDED_BY(mutex_);  // the error that Get returns before next_ms_
  int64_t next_ms_ KV_GUARDED_BY(mutex_) = 0;
};

}  // namespace kvcast::nats
