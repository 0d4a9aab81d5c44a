// The logs of a NATS server with JetStream: one stream per source. This library is the only part of
// kvcast that uses libnats.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kvcast/core/status.h"
#include "src/event_log/event_log.h"

namespace kvcast::nats {

struct NatsOptions {
  // Addresses of the servers of one cluster: nats://HOST:PORT or tls://HOST:PORT, separated by
  // commas.
  std::string url;
  // Paths of files; empty: not used. At most one of the first three may be set. No other user may
  // have access to these three files.
  std::string credentials_file;  // a .creds file: a JWT and an nkey seed
  std::string user_file;         // the user name in the first line, and the password in the second
  std::string token_file;        // a token
  std::string ca_file;           // certificates of the authorities that TLS trusts
  bool insecure = false;         // true: connections beyond loopback may be without TLS
};

// The connection of this process to the servers. Thread-safe. If a connection ends, a new one is
// made at the next use, at most one every 500 ms.
class NatsConnection {
 public:
  // Reads the files, and makes no connection. Error: kInvalidArgument.
  static Result<std::shared_ptr<NatsConnection>> Create(const NatsOptions& options);
  virtual ~NatsConnection() = default;
};

struct NatsSource {
  std::string model;
  std::string worker;

  // Error: kInvalidArgument; the text is not MODEL/WORKER. The model may contain slashes.
  static Result<NatsSource> Parse(const std::string& text);
  // The names in NATS. Other characters than letters and digits are replaced by `_` and two hex
  // digits each.
  std::string stream() const;          // kvcast-MODEL-WORKER
  std::string subject() const;         // kvcast.MODEL.WORKER
  std::string status_subject() const;  // kvcast-status.MODEL.WORKER
};

// The first EventLog::End makes the stream with this number of replicas, if it does not exist.
std::unique_ptr<event_log::EventLog> MakeNatsLog(std::shared_ptr<NatsConnection> connection,
                                                 const NatsSource& source, int replicas = 1);

}  // namespace kvcast::nats
