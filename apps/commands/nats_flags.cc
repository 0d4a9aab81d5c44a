// SPDX-License-Identifier: Apache-2.0
#include "apps/commands/nats_flags.h"

namespace kvcast::tools {
namespace {

void AddNats(CLI::App& sub, NatsFlags& nats, const char* help) {
  nats::NatsOptions& connection = nats.connection;
  CLI::Option* const url = sub.add_option("--nats", connection.url, help);
  const auto add_file = [&](const char* flag, std::string& path, const char* file_help) {
    return sub.add_option(flag, path, file_help)->needs(url);
  };
  add_file("--nats-credentials", connection.credentials_file,
           "credentials file of a NATS user (a JWT and an nkey seed)");
  add_file("--nats-user-file", connection.user_file,
           "file with the name of a NATS user in the first line and the password in the second");
  add_file("--nats-token-file", connection.token_file, "file with a NATS token");
  add_file("--nats-ca", connection.ca_file,
           "certificates of the authorities that may sign the certificate of the NATS server; the "
           "connection then uses TLS");
  sub.add_flag("--nats-insecure", connection.insecure,
               "allow a NATS server beyond loopback without TLS")
      ->needs(url);
}

}  // namespace

void AddRelayNats(CLI::App& sub, NatsFlags& nats) {
  AddNats(sub, nats,
          "also write the events to a NATS server with JetStream: nats://HOST:PORT or "
          "tls://HOST:PORT; several servers of a cluster are separated by commas");
  CLI::Option* const url = sub.get_option("--nats");
  CLI::Option* const source = sub.add_option("--nats-source", nats.source,
                                             "MODEL/WORKER: the name of the engine's log in NATS")
                                  ->needs(url);
  url->needs(source);
  sub.add_option(
         "--nats-replicas", nats.replicas,
         "number of NATS servers that store the log; used only when the relay creates the log")
      ->check(CLI::Range(int64_t{1}, int64_t{5}))
      ->capture_default_str()
      ->needs(url);
  sub.add_option("--nats-snapshot-mib", nats.snapshot_mib,
                 "MiB of batches between two snapshots in the log; the relay deletes the messages "
                 "before the second-latest snapshot")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str()
      ->needs(url);
}

void AddRouterNats(CLI::App& sub, NatsFlags& nats) {
  AddNats(sub, nats,
          "NATS server for sources with the endpoint nats:MODEL/WORKER: nats://HOST:PORT or "
          "tls://HOST:PORT; several servers of a cluster are separated by commas");
}

}  // namespace kvcast::tools
