// Includes the headers of a router: the prefix index, and the classes and functions that turn its
// answers into the choice of a worker. Not included: prompt_contents.h, scheme_detector.h and
// scheme_prover.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/router/load_rate.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/router/selector.h"
#include "kvcast/router/speculative_prefixes.h"
