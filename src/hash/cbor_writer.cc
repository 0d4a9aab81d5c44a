// SPDX-License-Identifier: Apache-2.0
#include "src/hash/cbor_writer.h"

#include <bit>
#include <cmath>
#include <optional>

#include "src/hash/store.h"

namespace kvcast::internal {
namespace {

enum Simple : uint8_t { kFalse = 0xf4, kTrue = 0xf5, kNull = 0xf6 };
enum FloatHead : uint8_t { kHalf = 0xf9, kSingle = 0xfa, kDouble = 0xfb };

constexpr int kSingleFraction = 23;
constexpr int kHalfFraction = 10;

// The half-precision bits of `value`, if no precision is lost.
std::optional<uint16_t> ToHalf(float value) {
  const auto sign = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16 & 0x8000);
  if (value == 0) return sign;
  int exponent;
  const float mantissa = std::frexp(std::fabs(value), &exponent);  // in [0.5, 1)
  if (exponent > 16 || exponent < -23) return std::nullopt;
  // Half-precision numbers below 2^-14 are subnormal: multiples of 2^-24.
  const int fraction_bits = exponent >= -13 ? kHalfFraction + 1 : exponent + 24;
  const float scaled = std::ldexp(mantissa, fraction_bits);
  if (scaled != std::trunc(scaled)) return std::nullopt;
  const auto significand = static_cast<uint16_t>(scaled);
  if (exponent < -13) return static_cast<uint16_t>(sign | significand);
  const auto biased = static_cast<uint16_t>((exponent + 14) << kHalfFraction);
  return static_cast<uint16_t>(sign | (biased + (significand & ((1 << kHalfFraction) - 1))));
}

std::optional<float> ToSingle(double value) {
  if (std::fabs(value) > std::ldexp(2.0 - std::ldexp(1.0, -kSingleFraction), 127)) {
    return std::nullopt;
  }
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value) return std::nullopt;
  return narrow;
}

template <typename T>
void PutFloat(ByteBuffer& out, uint8_t head, T bits) {
  uint8_t* at = out.Room(1 + sizeof(T));
  *at = head;
  StoreBig<T>(at + 1, bits);
  out.SetEnd(at + 1 + sizeof(T));
}

}  // namespace

void CborWriter::WriteNone() { out_.Put(kNull); }

void CborWriter::WriteBool(bool value) { out_.Put(value ? kTrue : kFalse); }

void CborWriter::WriteInt(int64_t value) {
  out_.SetEnd(PutCborInts(out_.Room(kMaxCborHeadBytes), {&value, 1}));
}

void CborWriter::WriteUnsigned(uint64_t value) { PutHead(kCborUnsigned, value); }

void CborWriter::WriteFloat(double value) {
  if (std::isnan(value)) return PutFloat<uint16_t>(out_, kHalf, 0x7e00);
  if (std::isinf(value)) return PutFloat<uint16_t>(out_, kHalf, value > 0 ? 0x7c00 : 0xfc00);
  const std::optional<float> single = ToSingle(value);
  if (!single) return PutFloat(out_, kDouble, std::bit_cast<uint64_t>(value));
  const std::optional<uint16_t> half = ToHalf(*single);
  if (half) return PutFloat(out_, kHalf, *half);
  PutFloat(out_, kSingle, std::bit_cast<uint32_t>(*single));
}

void CborWriter::WriteText(std::string_view utf8, uint32_t) {
  PutHead(kCborText, utf8.size());
  out_.Put(utf8.data(), utf8.size());
}

void CborWriter::WriteBytes(std::span<const uint8_t> bytes) {
  PutHead(kCborBytes, bytes.size());
  out_.Put(bytes.data(), bytes.size());
}

void CborWriter::WriteInts(std::span<const TokenId> values) {
  BeginTuple(values.size());
  out_.SetEnd(PutCborInts(out_.Room(values.size() * kMaxCborHeadBytes), values));
}

void CborWriter::BeginTuple(size_t size) { PutHead(kCborArray, size); }

void CborWriter::PutHead(CborMajor major, uint64_t argument) {
  out_.SetEnd(PutCborHead(out_.Room(kMaxCborHeadBytes), major, argument));
}

}  // namespace kvcast::internal
