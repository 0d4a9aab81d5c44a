// The cost of new memory: a lower bound of the pause of a batch that makes the index larger.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace kvcast::bench {

// Returns the median time of the first writes to a new huge page (2 MiB), in nanoseconds; 0: no
// memory.
double MeasureFreshHugePage();

}  // namespace kvcast::bench
