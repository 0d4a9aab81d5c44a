// Topics of the relay: kv.<model>.<worker>.<rank>.<tier>.<group>. A subscriber's prefix selects
// from the left. Dots, percent signs and blanks in names are written as %2E, %25 and %20, an empty
// name as "-". The group is "-" for events without a group, and for clears, which apply to all
// groups.
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
// nullopt: the topic of another kind of publisher.
std::optional<RelayTopic> ParseTopic(std::string_view text);

}  // namespace kvcast::router
