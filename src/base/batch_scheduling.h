// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvcast {

// Puts the calling thread into the scheduling class SCHED_BATCH. Threads that the calling thread
// starts later inherit the class. A wakeup of such a thread does not preempt the running thread.
// Use SCHED_BATCH for threads that may run a little later than the threads that wake them. Does
// nothing if the scheduling policy was changed before, or if the system refuses the change.
void SetBatchScheduling();

}  // namespace kvcast
