// CborWriter: writes canonical CBOR (RFC 7049 section 3.9) for the types of a block-hash preimage.
// The bytes are equal to those of the Python package cbor2 with canonical=True. Every head and
// every float has its shortest form.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "kvcast/core/ids.h"
#include "src/hash/byte_buffer.h"
#include "src/hash/cbor_int.h"

namespace kvcast::internal {

class CborWriter {
 public:
  // Writes at the end of `out`, which must outlive the writer.
  explicit CborWriter(ByteBuffer& out) : out_(out) {}

  void WriteNone();
  void WriteBool(bool value);
  void WriteInt(int64_t value);
  void WriteUnsigned(uint64_t value);
  void WriteFloat(double value);
  // CBOR has no references, so the tag is ignored. The parameter exists because PickleWriter has
  // it, and both writers have the same callers.
  void WriteText(std::string_view utf8, uint32_t object_tag = 0);
  void WriteBytes(std::span<const uint8_t> bytes);
  void WriteInts(std::span<const TokenId> values);

  // An array of `size` items: BeginTuple, the items, EndTuple with the same size.
  void BeginTuple(size_t size);
  void EndTuple(size_t) {}

  void Finish() {}

 private:
  void PutHead(CborMajor major, uint64_t argument);

  ByteBuffer& out_;
};

}  // namespace kvcast::internal
