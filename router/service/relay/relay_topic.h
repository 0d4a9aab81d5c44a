// Topics of the relay: kv.<model>.<worker>.<rank>.<tier>.<group>, so that a subscriber's prefix
// chooses from the left. Dots, percent signs and blanks of names are written as %2E, %25 and %20,
// an empty name as "-". The group is "-" for events that name none and for clears, which are of all
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

std::string TopicName(std::string_view name);  // as it stands in a topic
std::string FormatTopic(const RelayTopic& topic);
// nullopt: another publisher's topic.
std::optional<RelayTopic> ParseTopic(std::string_view text);

}  // namespace kvcast::router
