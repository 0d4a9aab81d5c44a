// The router library in one include: the prefix index.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kvcast/prefix_index.h"
