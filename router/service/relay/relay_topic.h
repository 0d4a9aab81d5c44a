// Topics of the relay: kv.<model>.<worker>.<rank>.<tier>.<group>. A subscriber selects topics by a
// prefix. Dots, percent signs, blanks and control characters in names are written as %XX, for
// example %2E for a dot. An empty name is written as "-", and the name "-" as "%2D". The group is
// "-" for events without a group, and for clears, which apply to all groups.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvcast::router {

struct RelayTopic {
  std::string model;
  std::string worker;
  int64_t rank = 0;
  std::string tier;  // "GPU", "CPU", "STORAGE"
  std::optional<int64_t> group;

  friend bool operator==(const RelayTopic&, const RelayTopic&) = default;
};

std::string TopicName(std::string_view name);  // the escaped form
std::string FormatTopic(const RelayTopic& topic);
// nullopt: the text is not a topic of a relay.
std::optional<RelayTopic> ParseTopic(std::string_view text);

}  // namespace kvcast::router
