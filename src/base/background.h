// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvcast {

// From now on, waking this thread, or one that it starts, does not interrupt the thread that runs:
// it waits for its turn. For threads whose work may come a little later than that of those who gave
// it. Does nothing where the scheduling policy has been changed already, or cannot be.
void RunInBackground();

}  // namespace kvcast
