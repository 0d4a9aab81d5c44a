// The router library in one include: the prefix index and what turns its answers into a choice.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/load_rate.h"
#include "kvcast/prefix_index.h"
#include "kvcast/selector.h"
#include "kvcast/speculative_prefixes.h"
