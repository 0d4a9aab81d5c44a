// RequestTurns: the permits of a subscriber. A source needs a permit for each open request.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/stream/follow/fair_permits.h"
#include "src/stream/follow/source_network.h"

namespace kvcast::stream {

// Requests with a short answer do not wait for requests with a long answer. Thread-safe.
struct RequestTurns {
  FairPermits& of(AnswerLength length) {
    return length == AnswerLength::kShort ? short_answers : long_answers;
  }

  FairPermits short_answers;
  FairPermits long_answers;
};

}  // namespace kvcast::stream
