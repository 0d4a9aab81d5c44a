// SPDX-License-Identifier: Apache-2.0
#include "src/wire/utf8.h"

#include <cstddef>
#include <cstdint>

namespace kvcast::wire {
namespace {

// Bytes of a sequence by its lead byte; 0 if no sequence can start with this byte.
size_t SequenceLength(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xc2) return 0;
  if (lead < 0xe0) return 2;
  if (lead < 0xf0) return 3;
  return lead < 0xf5 ? 4 : 0;
}

// The range of the second byte excludes overlong forms, surrogates and too large values.
bool SecondByteFits(uint8_t lead, uint8_t second) {
  uint8_t low = 0x80;
  uint8_t high = 0xbf;
  if (lead == 0xe0) low = 0xa0;
  if (lead == 0xed) high = 0x9f;
  if (lead == 0xf0) low = 0x90;
  if (lead == 0xf4) high = 0x8f;
  return second >= low && second <= high;
}

}  // namespace

bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const size_t length = SequenceLength(lead);
    if (length == 0 || length > text.size() - i) return false;
    if (length > 1 && !SecondByteFits(lead, static_cast<uint8_t>(text[i + 1]))) return false;
    for (size_t k = 2; k < length; ++k) {
      if ((static_cast<uint8_t>(text[i + k]) & 0xc0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

}  // namespace kvcast::wire
