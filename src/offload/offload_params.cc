// SPDX-License-Identifier: Apache-2.0
#include "kvcast/offload/offload_params.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <span>

namespace kvcast {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 2> kMedia = {"CPU", "STORAGE"};
constexpr std::array<std::string_view, 2> kLocalities = {"LOCAL", "REMOTE"};

bool Fits(const std::optional<std::string>& rule, std::optional<std::string_view> tier) {
  return !rule || !tier || *rule == *tier;
}

// False: the entry is invalid.
bool ReadName(const Json& entry, const char* key, std::span<const std::string_view> names,
              std::optional<std::string>& name) {
  const auto found = entry.find(key);
  if (found == entry.end() || found->is_null()) return true;
  if (!found->is_string()) return false;
  name = found->get<std::string>();
  for (char& c : *name) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return std::find(names.begin(), names.end(), *name) != names.end();
}

TierFilter ParseTiers(const Json& value) {
  if (!value.is_array()) return TierFilter();
  std::vector<TierFilter::Rule> rules;
  for (const Json& entry : value) {
    TierFilter::Rule rule;
    if (entry.is_object() && ReadName(entry, "medium", kMedia, rule.medium) &&
        ReadName(entry, "locality", kLocalities, rule.locality)) {
      rules.push_back(std::move(rule));
    }
  }
  return rules.empty() && !value.empty() ? TierFilter() : TierFilter(std::move(rules));
}

std::optional<int64_t> ReadTokens(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  if (found->get<uint64_t>() > INT64_MAX) return std::nullopt;
  return found->get<int64_t>();
}

}  // namespace

bool TierFilter::Allows(std::optional<std::string_view> medium,
                        std::optional<std::string_view> locality) const {
  if (!rules_) return true;
  return std::any_of(rules_->begin(), rules_->end(), [&](const Rule& rule) {
    return Fits(rule.medium, medium) && Fits(rule.locality, locality);
  });
}

Result<OffloadParams> ParseOffloadParams(std::string_view json) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    return Status(StatusCode::kMalformed, "kv_transfer_params is not a JSON object");
  }
  OffloadParams params;
  params.max_offload_tokens = ReadTokens(object, "max_offload_tokens");
  params.max_load_tokens = ReadTokens(object, "max_load_tokens");
  if (const auto found = object.find("kv_load_tiers"); found != object.end()) {
    params.load_tiers = ParseTiers(*found);
  }
  return params;
}

}  // namespace kvcast
