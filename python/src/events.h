// Events: conversions between Python values and the structs of event.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <vector>

#include "kvcast/core/event.h"

namespace kvcast::python {

// Returns the event in a Python object BlockStored, BlockRemoved or AllBlocksCleared. TypeError:
// the object is of another class. `argument` begins the message.
Event EventOf(pybind11::handle object, const std::string& argument);
std::vector<Event> EventsOf(pybind11::handle events);

// Makes a store from the arguments of the class BlockStored. The other members are keyword
// arguments in `more`.
BlockStored MakeStored(const pybind11::object& block_hashes, const pybind11::object& token_ids,
                       int64_t block_size, const pybind11::object& parent_block_hash,
                       const pybind11::kwargs& more);

}  // namespace kvcast::python
