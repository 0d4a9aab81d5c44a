// docs/options.md and schemas/openapi.json describe the members that the service reads: their
// names, types, bounds and defaults. tests/apps/commands/options_test.py checks the flags.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "router/service/api/source_json.h"
#include "router/service/api/source_members.h"
#include "router/service/api/static_files.h"
#include "router/service/config_json.h"
#include "tests/support/source_dir.h"

namespace kvcast::router {
namespace {

using Cells = std::vector<std::string>;

Cells CellsOf(const std::string& line) {
  Cells cells;
  for (size_t at = 1; at < line.size();) {
    const size_t end = std::min(line.find('|', at), line.size());
    const std::string cell = line.substr(at, end - at);
    const size_t first = cell.find_first_not_of(' ');
    const size_t last = cell.find_last_not_of(' ');
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
    at = end + 1;
  }
  return cells;
}

// A row of a table: its cells by the names of the columns.
using Row = std::map<std::string, std::string>;

// Returns the rows of the table below the heading.
std::vector<Row> TableOf(const std::string& heading) {
  std::ifstream page(SourceDir() / "docs" / "options.md");
  std::string line;
  while (std::getline(page, line) && line != "## " + heading) continue;
  std::vector<Cells> table;
  while (std::getline(page, line) && !line.starts_with("## ")) {
    if (line.starts_with("|")) table.push_back(CellsOf(line));
  }
  std::vector<Row> rows;
  for (size_t i = 2; i < table.size(); ++i) {  // after the head and its separator
    EXPECT_EQ(table[i].size(), table[0].size()) << heading << ": " << table[i][0];
    Row row;
    for (size_t column = 0; column < std::min(table[0].size(), table[i].size()); ++column) {
      row[table[0][column]] = table[i][column];
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string Code(const std::string& text) { return "`" + text + "`"; }

// Returns the JSON of a default that the page writes as code; nullopt: the default is in words.
std::optional<Json> Literal(const std::string& cell) {
  if (cell.size() < 2 || cell.front() != '`' || cell.back() != '`') return std::nullopt;
  return std::make_optional<Json>(Json::parse(cell.substr(1, cell.size() - 2)));
}

Cells Column(const std::vector<Row>& rows, const std::string& column) {
  Cells cells;
  for (const Row& row : rows) cells.push_back(row.at(column));
  return cells;
}

// Returns the elements of `some` that `others` does not contain.
Cells Without(Cells some, Cells others) {
  std::sort(some.begin(), some.end());
  std::sort(others.begin(), others.end());
  Cells left;
  std::set_difference(some.begin(), some.end(), others.begin(), others.end(),
                      std::back_inserter(left));
  return left;
}

// `names` must contain the name of each member exactly once.
template <typename Member>
void CompareNames(const std::string& where, const Cells& names, std::span<const Member> members) {
  Cells known;
  for (const Member& member : members) known.push_back(Code(member.name));
  EXPECT_EQ(Without(known, names), Cells()) << where << " lacks these members";
  EXPECT_EQ(Without(names, known), Cells()) << where << " has these extra names";
}

template <typename Member>
const Member* Find(std::span<const Member> members, const std::string& code) {
  for (const Member& member : members) {
    if (Code(member.name) == code) return &member;
  }
  return nullptr;
}

Json SchemaOf(const std::string& name) {
  return Json::parse(OpenApiText())["components"]["schemas"][name];
}

std::string Bounds(const Json& schema) {
  if (schema.contains("maximum")) {
    return ", " + schema["minimum"].dump() + " to " + schema["maximum"].dump();
  }
  return schema.contains("minimum") ? ", " + schema["minimum"].dump() + " or more" : "";
}

// Returns the words of the page for the type that a schema describes.
std::string TypeOf(const Json& schema) {
  if (schema.contains("oneOf")) {
    return TypeOf(schema["oneOf"][0]) + " or " + TypeOf(schema["oneOf"][1]);
  }
  const std::string type = schema.value("type", "");
  if (type == "boolean") return "true or false";
  if (type == "integer") return "integer" + Bounds(schema);
  if (type == "object") return "object of texts";
  if (type == "array") {
    const Json& items = schema["items"];
    if (items.contains("$ref")) return "array of groups";
    if (items["type"] == "string") return "array of texts";
    return "array of integers" + Bounds(items);
  }
  std::string text = "text";
  const size_t values = schema.contains("enum") ? schema["enum"].size() : 0;
  for (size_t i = 0; i < values; ++i) {
    const char* const link = i == 0 ? ": " : i + 1 == values ? " or " : ", ";
    text += link + Code(schema["enum"][i]);
  }
  return text;
}

// Returns the first words of the page's type of a member with this shape.
std::string TypeOf(MemberShape shape) {
  const std::map<MemberShape, std::string> types = {{MemberShape::kText, "text"},
                                                    {MemberShape::kInteger, "integer"},
                                                    {MemberShape::kBool, "true or false"},
                                                    {MemberShape::kTexts, "array of texts"},
                                                    {MemberShape::kPairs, "object of texts"},
                                                    {MemberShape::kIntegers, "array of integers"},
                                                    {MemberShape::kGroups, "array of groups"}};
  return types.at(shape);
}

std::string FlagOf(const SourceMember& member) {
  const std::string name = member.name;
  if (name == "name" || name == "endpoint") return Code("NAME=ENDPOINT");
  const std::map<MemberShape, std::string> values = {
      {MemberShape::kText, "TEXT"},
      {MemberShape::kInteger, "N"},
      {MemberShape::kBool, "true"},
      {MemberShape::kTexts, "TEXT+TEXT..."},
      {MemberShape::kPairs, "NAME:TEXT+..."},
      {MemberShape::kIntegers, "N+N..."},
      {MemberShape::kGroups, "KIND:BLOCK_SIZE[:WINDOW or CHUNK][:eagle]+..."}};
  return Code(name + "=" + values.at(member.shape));
}

// The table, the code and the schema must have the same names and types.
template <typename Member>
void CompareTypes(const std::vector<Row>& rows, std::span<const Member> members,
                  const Json& schema) {
  CompareNames("the page", Column(rows, "member"), members);
  Cells described;
  for (const auto& [name, property] : schema["properties"].items()) described.push_back(Code(name));
  CompareNames("openapi.json", described, members);
  for (const Row& row : rows) {
    const Member* const member = Find(members, row.at("member"));
    if (member == nullptr || !schema["properties"].contains(member->name)) continue;
    EXPECT_EQ(row.at("type"), TypeOf(schema["properties"][member->name])) << member->name;
    EXPECT_TRUE(row.at("type").starts_with(TypeOf(member->shape))) << member->name;
    const Json& required = schema["required"];
    const bool is_required = std::count(required.begin(), required.end(), Json(member->name)) > 0;
    EXPECT_EQ(row.at("default") == "required", is_required) << member->name;
  }
}

// Returns true if the member accepts the value.
bool Takes(const SourceMember& member, const Json& value) {
  WorkerRegistration source;
  return member.read(value, member.name, source).ok();
}

// Returns the sources whose defaults are compared. The first source has the default format, and
// each format has one more source. All sources have a sparse rule.
std::vector<WorkerRegistration> SourcesOfAllFormats() {
  std::vector<WorkerRegistration> sources(1);
  for (const auto& [format, name] : kEventFormatNames) sources.emplace_back().format = format;
  for (WorkerRegistration& source : sources)
    source.worker.sparse_rule = SparseRule{.alignment = 16};
  return sources;
}

TEST(OptionsPage, ListsTheMembersOfASource) {
  const std::vector<Row> rows = TableOf("Members of a source");
  CompareTypes(rows, SourceMembers(), SchemaOf("Source"));
  for (const Row& row : rows) {
    const SourceMember* const member = Find(SourceMembers(), row.at("member"));
    if (member != nullptr) {
      EXPECT_EQ(row.at("in `--source`"), FlagOf(*member));
    }
  }
}

TEST(OptionsPage, GivesTheDefaultsOfASource) {
  int compared = 0;
  for (const Row& row : TableOf("Members of a source")) {
    const SourceMember* const member = Find(SourceMembers(), row.at("member"));
    const auto value = Literal(row.at("default"));
    if (member == nullptr || !value) continue;
    std::vector<WorkerRegistration> sources = SourcesOfAllFormats();
    if (row.at("member") == "`format`") sources.resize(1);
    for (const WorkerRegistration& source : sources) {
      WorkerRegistration given = source;
      ASSERT_TRUE(member->read(*value, member->name, given).ok()) << member->name;
      EXPECT_EQ(SourceToJson(given), SourceToJson(source)) << member->name;
    }
    ++compared;
  }
  EXPECT_GT(compared, 15);
}

TEST(OptionsPage, ListsTheMembersOfAGroup) {
  const std::vector<Row> rows = TableOf("Members of a group");
  CompareTypes(rows, GroupMembers(), SchemaOf("Group"));
  for (const Row& row : rows) {
    const GroupMember* const member = Find(GroupMembers(), row.at("member"));
    const auto value = Literal(row.at("default"));
    if (member == nullptr || !value) continue;
    GroupSpec given;
    ASSERT_TRUE(member->read(*value, member->name, given).ok()) << member->name;
    EXPECT_EQ(given, GroupSpec()) << member->name;
  }
}

TEST(OpenApi, GivesTheBoundsOfTheMembers) {
  const Json source = SchemaOf("Source");
  for (const auto& [name, schema] : source["properties"].items()) {
    const SourceMember* const member = FindSourceMember(name);
    ASSERT_NE(member, nullptr) << name;
    if (schema.contains("minimum")) {
      const int64_t least = schema["minimum"];
      EXPECT_TRUE(Takes(*member, least)) << name;
      EXPECT_FALSE(Takes(*member, least - 1)) << name;
    }
    const int64_t most = schema.value("maximum", int64_t{1} << 62);
    if (schema.value("type", "") == "integer") {
      EXPECT_TRUE(Takes(*member, most)) << name;
    }
    if (schema.contains("maximum")) {
      EXPECT_FALSE(Takes(*member, most + 1)) << name;
    }
    if (schema.value("type", "") == "array") {
      EXPECT_EQ(Takes(*member, Json::array()), !schema.contains("minItems")) << name;
    }
    if (!schema.contains("enum")) continue;
    for (const Json& value : schema["enum"]) EXPECT_TRUE(Takes(*member, value)) << name;
    EXPECT_FALSE(Takes(*member, "no such value")) << name;
  }
}

// Returns the fields of the options that the members of the file set, except the weights.
Json FieldsOf(const RouterOptions& options) {
  return {
      {"http", options.http.address + ":" + std::to_string(options.http.port)},
      {"tls", {options.http.tls_certificate, options.http.tls_key}},
      {"token_file", options.http.token_file},
      {"admin_listen", options.admin_http.has_value()},
      {"allowed_hosts", options.http.allowed_hosts},
      {"source_networks", options.source_networks.size()},
      {"max_sources", options.source_limits.workers},
      {"max_http_sources", options.source_limits.client_workers},
      {"max_residencies", options.source_limits.residencies},
      {"sources", options.sources.size()},
      {"source_files", options.source_files},
      {"dns", {options.dns_sources.size(), options.dns_server}},
      {"kubernetes_sources", options.kubernetes_sources.size()},
      {"kubernetes",
       {options.kubernetes.url, options.kubernetes.token_file, options.kubernetes.ca_file}},
      {"state", {options.state.folder, options.state.period_s}},
      {"peer",
       {options.peer.url, options.peer.token_file, options.peer.ca_file, options.peer.timeout_ms}},
      {"load",
       {options.load.endpoint, options.load.peers.size(), options.load.period_ms,
        options.load.name}},
      {"ingest_threads", options.ingest_threads},
      {"temperature", options.routing.temperature},
      {"speculative_ms", options.routing.speculative.lifetime_ms},
      {"booking_lifetime_ms", options.routing.booking_lifetime_ms},
      {"relay", {options.relay.endpoint, options.relay.redact}},
      {"curve", {options.curve_key, options.curve_clients}},
      {"allow_remote", options.allow_remote}};
}

TEST(OptionsPage, ListsTheMembersOfTheConfigurationFile) {
  const std::vector<Row> rows = TableOf("Configuration file of the router");
  CompareNames("the page", Column(rows, "member"), ConfigMembers());
  RouterOptions unset;
  unset.http.port = kDefaultHttpPort;
  for (const Row& row : rows) {
    const ConfigMember* const member = Find(ConfigMembers(), row.at("member"));
    if (member == nullptr) continue;
    const auto value = Literal(row.at("default"));
    ASSERT_TRUE(value) << member->name;
    RouterOptions given = unset;
    ASSERT_TRUE(member->read(*value, member->name, given).ok()) << member->name;
    EXPECT_EQ(FieldsOf(given), FieldsOf(unset)) << member->name;
  }
}

TEST(OptionsPage, ListsTheWeights) {
  const std::vector<Row> rows = TableOf("Weights of a routing decision");
  CompareNames("the page", Column(rows, "weight"), WeightMembers());
  RoutingConfig unset;
  for (const Row& row : rows) {
    const WeightMember* const member = Find(WeightMembers(), row.at("weight"));
    const auto value = Literal(row.at("default"));
    if (member != nullptr) {
      EXPECT_EQ(value.value_or(Json()), Json(member->of(unset)));
    }
  }
}

}  // namespace
}  // namespace kvcast::router
