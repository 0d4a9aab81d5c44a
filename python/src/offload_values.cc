// SPDX-License-Identifier: Apache-2.0
#include "python/src/offload_values.h"

#include <nlohmann/json.hpp>

#include "python/src/errors.h"
#include "python/src/json_value.h"
#include "router/service/api/source_json.h"

namespace py = pybind11;

namespace kvcast::python {

OffloadKey OffloadKeyOf(py::handle object, const std::string& argument) {
  if (!PyBytes_Check(object.ptr())) ThrowType(argument + ": a key must be bytes");
  const char* const data = PyBytes_AS_STRING(object.ptr());
  const auto key = ParseOffloadKey({reinterpret_cast<const uint8_t*>(data),
                                    static_cast<size_t>(PyBytes_GET_SIZE(object.ptr()))});
  if (!key.ok())
    ThrowInvalid(argument + ": a key must have 5 to 36 bytes: the hash, then the group");
  return *key;
}

std::vector<OffloadKey> OffloadKeysOf(py::handle keys) {
  std::vector<OffloadKey> read;
  for (const py::handle key : keys) {
    read.push_back(OffloadKeyOf(key, "keys[" + std::to_string(read.size()) + "]"));
  }
  return read;
}

py::bytes ToPython(const OffloadKey& key) {
  const OffloadKeyBytes bytes = ToBytes(key);
  return {reinterpret_cast<const char*>(bytes.data.data()), bytes.size};
}

py::list ToPython(const std::vector<OffloadKey>& keys) {
  py::list list;
  for (const OffloadKey& key : keys) list.append(ToPython(key));
  return list;
}

py::list ToPython(const std::vector<SlotId>& slots) {
  py::list list;
  for (const SlotId slot : slots) list.append(py::int_(slot.value));
  return list;
}

EngineRules RulesOf(const std::string& name) {
  const auto rules = ParseEngineRules(name);
  if (!rules) ThrowInvalid("rules: must be one of " + EngineRulesNames() + ", not '" + name + "'");
  return *rules;
}

EvictionPolicyKind PolicyOf(const std::string& name) {
  if (name == "lru") return EvictionPolicyKind::kLru;
  if (name == "arc") return EvictionPolicyKind::kArc;
  ThrowInvalid("policy: must be lru or arc, not '" + name + "'");
}

std::vector<GroupSpec> GroupsOf(const py::object& groups) {
  // SourceFromJson checks the members of the groups. The other members only make a valid source.
  nlohmann::json source = {{"name", "groups"}, {"endpoint", "ipc://in-process"}};
  source["groups"] = ToJson(groups, "groups");
  return Take(router::SourceFromJson(source)).worker.groups;
}

py::dict ToPython(const OffloadStats& stats) {
  py::dict dict;
  dict["usage"] = stats.usage;
  dict["write_usage"] = stats.write_usage;
  dict["read_usage"] = stats.read_usage;
  dict["stores_skipped"] = stats.stores_skipped;
  return dict;
}

}  // namespace kvcast::python
