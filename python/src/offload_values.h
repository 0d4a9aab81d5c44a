// Values of the offload classes: keys, slots and configurations.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kvcast/core/ids.h"
#include "kvcast/offload/offload_manager.h"
#include "kvcast/spec/cache_spec.h"

namespace kvcast::python {

// A key in the engine's byte form: the bytes of the hash, then the group as 4 bytes, big-endian.
// TypeError: the object is not bytes. InvalidArgumentError: a wrong length. `argument` begins the
// message.
OffloadKey OffloadKeyOf(pybind11::handle object, const std::string& argument);
std::vector<OffloadKey> OffloadKeysOf(pybind11::handle keys);
pybind11::bytes ToPython(const OffloadKey& key);
pybind11::list ToPython(const std::vector<OffloadKey>& keys);
pybind11::list ToPython(const std::vector<SlotId>& slots);

EngineRules RulesOf(const std::string& name);
EvictionPolicyKind PolicyOf(const std::string& name);
// The groups of an engine: dicts with the members of `groups` of a source (docs/options.md).
std::vector<GroupSpec> GroupsOf(const pybind11::object& groups);
pybind11::dict ToPython(const OffloadStats& stats);

}  // namespace kvcast::python
