// The router library in one include: the prefix index and what turns its answers into a choice.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/router/load_rate.h"
#include "kvcast/router/prefix_index.h"
#include "kvcast/router/selector.h"
#include "kvcast/router/speculative_prefixes.h"
