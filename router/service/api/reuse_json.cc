// SPDX-License-Identifier: Apache-2.0
#include "router/service/api/reuse_json.h"

#include <nlohmann/json.hpp>
#include <string>

#include "router/service/json/json_fields.h"

namespace kvcast::router {
namespace {

std::string KindOf(const std::vector<GroupSpec>& groups, size_t group) {
  return std::string(SpecKindName(group < groups.size() ? groups[group].kind : SpecKind::kUnknown));
}

Json LostByCause(const ReuseDiagnosis& diagnosis) {
  Json lost = Json::object();
  for (size_t i = 0; i < kReuseCauses; ++i) {
    lost[std::string(ReuseCauseName(static_cast<ReuseCause>(i)))] = diagnosis.lost_by_cause[i];
  }
  return lost;
}

}  // namespace

Json ReuseJson(const ReuseDiagnosis& diagnosis, const std::vector<GroupSpec>& groups,
               const ReuseByKindAndCause& totals) {
  const ReuseDiagnosis::GroupUse total = diagnosis.total();
  Json json = {{"cause", DiagnosisName(diagnosis)},
               {"explanation", ExplainDiagnosis(diagnosis, groups)},
               {"group", nullptr},
               {"group_kind", nullptr},
               {"tested_prompts", diagnosis.tested},
               {"lost_prompts", diagnosis.lost},
               {"lost_by_cause", LostByCause(diagnosis)},
               {"alignment", diagnosis.alignment},
               {"group_alignment", diagnosis.group_alignment},
               {"sampled_blocks", total.held},
               {"usable_blocks", total.usable},
               {"usable_share", nullptr},
               {"groups", Json::array()},
               {"observed", Json::array()}};
  if (diagnosis.group) {
    json["group"] = *diagnosis.group;
    json["group_kind"] = KindOf(groups, static_cast<size_t>(*diagnosis.group));
  }
  if (total.held > 0) {
    json["usable_share"] = static_cast<double>(total.usable) / static_cast<double>(total.held);
  }
  for (size_t i = 0; i < diagnosis.groups.size(); ++i) {
    json["groups"].push_back({{"group", i},
                              {"kind", KindOf(groups, i)},
                              {"sampled_blocks", diagnosis.groups[i].held},
                              {"usable_blocks", diagnosis.groups[i].usable}});
  }
  for (const auto& [key, reuse] : totals) {
    json["observed"].push_back({{"kind", key.first},
                                {"cause", key.second},
                                {"requests", reuse.requests},
                                {"predicted_tokens", reuse.predicted_tokens},
                                {"reused_tokens", reuse.reused_tokens}});
  }
  return json;
}

}  // namespace kvcast::router
