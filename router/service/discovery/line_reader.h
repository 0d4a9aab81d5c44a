// LineReader: the lines of a stream of bytes that arrives in pieces.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvcast::router {

// Thread-compatible.
class LineReader {
 public:
  explicit LineReader(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Appends the lines that are complete now to `lines`, without their newlines. Empty lines are
  // left out. False: a line is longer than the bound, and the stream must not be read further.
  bool Add(std::string_view bytes, std::vector<std::string>& lines) {
    for (;;) {
      const size_t end = bytes.find('\n');
      const std::string_view piece = bytes.substr(0, end);
      if (line_.size() + piece.size() > max_bytes_) return false;
      line_ += piece;
      if (end == std::string_view::npos) return true;
      if (!line_.empty()) lines.push_back(std::exchange(line_, {}));
      bytes.remove_prefix(end + 1);
    }
  }

 private:
  const size_t max_bytes_;
  std::string line_;  // its end has not arrived
};

}  // namespace kvcast::router
