// SPDX-License-Identifier: Apache-2.0
#include "src/base/batch_scheduling.h"

#include <sched.h>

namespace kvcast {

void SetBatchScheduling() {
#ifdef SCHED_BATCH
  const sched_param priority{};
  if (sched_getscheduler(0) == SCHED_OTHER) sched_setscheduler(0, SCHED_BATCH, &priority);
#endif
}

}  // namespace kvcast
