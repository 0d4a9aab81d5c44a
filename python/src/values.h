// Values: conversions between Python objects and the value types of events.
//
//   block hash   int from -2^63 to 2^64 - 1, or bytes of at most 256 bytes
//   extra key    None, bool, int, float, str, bytes, or a list or tuple of extra keys
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvcast/core/block_hash_value.h"
#include "kvcast/core/extra_key.h"
#include "kvcast/stream/subscriber.h"

namespace kvcast::python {

struct Integer {
  bool negative = false;
  uint64_t magnitude = 0;  // if negative: the two's complement bits
};
// Errors: TypeError if the object is not an integer, or is a bool; InvalidArgumentError if the
// integer is not from -2^63 to 2^64 - 1. `argument` begins the message.
Integer IntegerOf(pybind11::handle object, const std::string& argument);

BlockHash HashOf(pybind11::handle object, const std::string& argument);
pybind11::object ToPython(const BlockHash& hash);
pybind11::list ToPython(const std::vector<BlockHash>& hashes);

ExtraKey ExtraKeyOf(pybind11::handle object, const std::string& argument, int depth = 0);
pybind11::object ToPython(const ExtraKey& key);

// Returns the extra keys of a block. Python's None becomes nullopt.
std::optional<ExtraKeys> ExtraKeysOf(pybind11::handle object, const std::string& argument);

// The part of a status that every source has: state, reason, next_seq, batches, gaps, lost,
// duplicates and resets.
pybind11::dict ToPython(const SourceStatus& status);

// The text of a str. Errors: TypeError; UnicodeEncodeError for a lone surrogate.
std::string TextOf(pybind11::handle object, const std::string& argument);

}  // namespace kvcast::python
