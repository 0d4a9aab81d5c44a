// The events of the log, and their limits. docs/logging.md explains each event and the necessary
// action; a test compares the two lists.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace kvcast {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };
inline constexpr std::array<std::string_view, 4> kLogLevelNames = {"debug", "info", "warning",
                                                                   "error"};

// In each window of LogLimiter::kWindowMs, the log writes at most `lines_per_source` lines of the
// event for one source, and at most `lines` lines of the event in total. An event that a peer
// without a key or token can cause has a small `lines`.
struct LogEvent {
  std::string_view name;
  LogLevel level = LogLevel::kInfo;
  uint32_t lines_per_source = 20;
  uint32_t lines = 100'000;

  // The same event at another level.
  constexpr LogEvent At(LogLevel other) const { return {name, other, lines_per_source, lines}; }
};

namespace log_events {

// The process and its listeners.
inline constexpr LogEvent kStarted = {"started"};
inline constexpr LogEvent kStopping = {"stopping"};
inline constexpr LogEvent kReloaded = {"reloaded"};
inline constexpr LogEvent kReloadFailed = {"reload_failed", LogLevel::kError};
inline constexpr LogEvent kHttpListening = {"http_listening"};
inline constexpr LogEvent kStreamListening = {"stream_listening"};
// Sources.
inline constexpr LogEvent kSourceAdded = {"source_added"};
inline constexpr LogEvent kSourceRemoved = {"source_removed"};
inline constexpr LogEvent kSourceRefused = {"source_refused", LogLevel::kWarning, 20, 200};
inline constexpr LogEvent kSourceFailed = {"source_failed", LogLevel::kError};
inline constexpr LogEvent kSourceFileRead = {"source_file_read"};
inline constexpr LogEvent kSourceFileFailed = {"source_file_failed", LogLevel::kError};
inline constexpr LogEvent kSourceLookupFailed = {"source_lookup_failed", LogLevel::kError};
inline constexpr LogEvent kSourceWatchFailed = {"source_watch_failed", LogLevel::kError};
inline constexpr LogEvent kSourceInsecure = {"source_insecure", LogLevel::kWarning};
inline constexpr LogEvent kSourceState = {"source_state"};
inline constexpr LogEvent kSourceReset = {"source_reset", LogLevel::kWarning};
inline constexpr LogEvent kSourceSnapshot = {"source_snapshot"};
inline constexpr LogEvent kSourceRestored = {"source_restored"};
inline constexpr LogEvent kSourceHandshakeFailed = {"source_handshake_failed", LogLevel::kWarning,
                                                    1};
inline constexpr LogEvent kNatsState = {"nats_state"};
// The saved state.
inline constexpr LogEvent kStateSaved = {"state_saved", LogLevel::kDebug};
inline constexpr LogEvent kStateSaveFailed = {"state_save_failed", LogLevel::kError};
inline constexpr LogEvent kStateRefused = {"state_refused", LogLevel::kWarning};
// The state of another router.
inline constexpr LogEvent kStateSent = {"state_sent"};
inline constexpr LogEvent kStateSendFailed = {"state_send_failed", LogLevel::kWarning};
inline constexpr LogEvent kPeerJoined = {"peer_joined"};
inline constexpr LogEvent kPeerJoinFailed = {"peer_join_failed", LogLevel::kWarning};
inline constexpr LogEvent kPeerStateDropped = {"peer_state_dropped"};
// HTTP.
inline constexpr LogEvent kHttpRefused = {"http_refused", LogLevel::kWarning, 10, 100};
inline constexpr LogEvent kHttpFailed = {"http_failed", LogLevel::kError, 20, 200};
inline constexpr LogEvent kHttpRequest = {"http_request", LogLevel::kDebug, 100'000};
// Encrypted streams.
inline constexpr LogEvent kStreamRefused = {"stream_refused", LogLevel::kWarning, 10, 100};
inline constexpr LogEvent kStreamRevoked = {"stream_revoked", LogLevel::kWarning};
inline constexpr LogEvent kStreamDenied = {"stream_denied", LogLevel::kWarning, 10, 100};
inline constexpr LogEvent kClientListFailed = {"client_list_failed", LogLevel::kError, 2};
// The simulated engine.
inline constexpr LogEvent kPublishFailed = {"publish_failed", LogLevel::kError, 10};
inline constexpr LogEvent kRequestRefused = {"request_refused", LogLevel::kWarning, 10};
// The log itself.
inline constexpr LogEvent kLinesSuppressed = {"lines_suppressed", LogLevel::kWarning};
inline constexpr LogEvent kLinesLost = {"lines_lost", LogLevel::kError};

}  // namespace log_events

inline constexpr std::array kLogEvents = {
    log_events::kStarted,
    log_events::kStopping,
    log_events::kReloaded,
    log_events::kReloadFailed,
    log_events::kHttpListening,
    log_events::kStreamListening,
    log_events::kSourceAdded,
    log_events::kSourceRemoved,
    log_events::kSourceRefused,
    log_events::kSourceFailed,
    log_events::kSourceFileRead,
    log_events::kSourceFileFailed,
    log_events::kSourceLookupFailed,
    log_events::kSourceWatchFailed,
    log_events::kSourceInsecure,
    log_events::kSourceState,
    log_events::kSourceReset,
    log_events::kSourceSnapshot,
    log_events::kSourceRestored,
    log_events::kSourceHandshakeFailed,
    log_events::kNatsState,
    log_events::kStateSaved,
    log_events::kStateSaveFailed,
    log_events::kStateRefused,
    log_events::kStateSent,
    log_events::kStateSendFailed,
    log_events::kPeerJoined,
    log_events::kPeerJoinFailed,
    log_events::kPeerStateDropped,
    log_events::kHttpRefused,
    log_events::kHttpFailed,
    log_events::kHttpRequest,
    log_events::kStreamRefused,
    log_events::kStreamRevoked,
    log_events::kStreamDenied,
    log_events::kClientListFailed,
    log_events::kPublishFailed,
    log_events::kRequestRefused,
    log_events::kLinesSuppressed,
    log_events::kLinesLost,
};

}  // namespace kvcast
