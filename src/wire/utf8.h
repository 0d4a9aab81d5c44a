// Checks whether text is UTF-8, because MessagePack requires valid UTF-8 in text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace kvcast::wire {

// False: a stray or missing continuation byte, an overlong form, a surrogate, or a code point above
// U+10FFFF.
bool IsUtf8(std::string_view text);

}  // namespace kvcast::wire
