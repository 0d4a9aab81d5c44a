// SPDX-License-Identifier: Apache-2.0
#include "apps/support/stderr_log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <utility>

namespace kvcast::tools {

std::unique_ptr<Logger> MakeStderrLog(const LogOptions& options) {
  Logger::Config config;
  const auto level = std::ranges::find(kLogLevelNames, options.level);
  if (level != kLogLevelNames.end()) {
    config.level = static_cast<LogLevel>(level - kLogLevelNames.begin());
  }
  config.format = options.format == "json" ? LogFormat::kJson : LogFormat::kText;
  config.output = [output = LineOutput(STDERR_FILENO)](std::string_view line) mutable {
    return output.Write(line);
  };
  return std::make_unique<Logger>(std::move(config));
}

std::vector<std::string> FlagsOf(const LogOptions& options) {
  return {"--log-format", options.format, "--log-level", options.level};
}

bool LineOutput::AwaitRoom(int ms) const {
  pollfd wait = {file_, POLLOUT, 0};
  return poll(&wait, 1, ms) > 0 && (wait.revents & POLLOUT) != 0;
}

// If poll reports room in a pipe, the pipe has room for PIPE_BUF bytes. Writes of at most PIPE_BUF
// bytes thus do not block.
bool LineOutput::Write(std::string_view line) {
  if (stuck_ && !AwaitRoom(0)) return false;
  const std::string whole = (cut_line_ ? "\n" : "") + std::string(line);
  size_t sent = 0;
  while (sent < whole.size()) {
    stuck_ = !AwaitRoom(patience_ms_);
    if (stuck_) break;
    const size_t part = std::min<size_t>(whole.size() - sent, PIPE_BUF);
    const ssize_t wrote = write(file_, whole.data() + sent, part);
    if (wrote <= 0) break;
    sent += static_cast<size_t>(wrote);
  }
  if (sent > 0) cut_line_ = sent < whole.size();
  return sent > 0;
}

}  // namespace kvcast::tools
