// The cost of new memory: a lower bound of the pause of a batch that makes the index larger.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvcast::bench {

// Returns the median time to write to a huge page (2 MiB) that the kernel has just given to the
// process, in nanoseconds; 0: no memory. The call then frees the memory.
double MeasureFreshHugePage();

}  // namespace kvcast::bench
