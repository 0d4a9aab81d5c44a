// SPDX-License-Identifier: Apache-2.0
#include "src/stream/net/notice_log.h"

#include <utility>

namespace kvcast::stream {
namespace {

const LogEvent& EventOf(CurveNotice::Kind kind) {
  switch (kind) {
    case CurveNotice::Kind::kRefused:
      return log_events::kStreamRefused;
    case CurveNotice::Kind::kRevoked:
      return log_events::kStreamRevoked;
    case CurveNotice::Kind::kListFailed:
      return log_events::kClientListFailed;
  }
  return log_events::kStreamRefused;
}

}  // namespace

std::function<void(const CurveNotice&)> LogNotices(Logger& log, std::string stream) {
  return [&log, stream = std::move(stream)](const CurveNotice& notice) {
    if (notice.kind == CurveNotice::Kind::kRevoked) {
      log.Write(EventOf(notice.kind), "",
                {{"stream", stream}, {"socket", notice.socket}, {"clients", notice.clients}});
      return;
    }
    log.Write(EventOf(notice.kind), notice.peer,
              {{"stream", stream}, {"socket", notice.socket}, {"reason", notice.reason}});
  };
}

}  // namespace kvcast::stream
