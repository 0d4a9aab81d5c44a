// SPDX-License-Identifier: Apache-2.0
#include "src/hash/block_template.h"

#include <array>

#include "src/base/check.h"
#include "src/hash/cbor_int.h"
#include "src/hash/pickle_int.h"
#include "src/hash/pickle_writer.h"
#include "src/hash/store.h"

namespace kvcast::internal {
namespace {

// Room for all parts except the tokens, the lookahead, tail_ and end_.
constexpr size_t kHeadMax = 64;
// The longest tail that is copied without a call, in bytes.
constexpr size_t kShortTail = 8;

// Always copies 32 bytes, because a copy of a constant size needs no call. The bytes after the
// digest are overwritten later.
uint8_t* PutDigest(uint8_t* at, const Digest& digest) {
  std::memcpy(at, digest.data.data(), digest.data.size());
  return at + digest.size;
}

}  // namespace

void BlockTemplate::SetKeys(const ExtraKeys& keys, const ChainForm& form) {
  // The bytes after the tokens do not depend on the parent or the tokens, so any block serves as a
  // sample.
  const std::array<TokenId, 1 + kMaxHashLookahead> tokens{};
  lookahead_ = static_cast<size_t>(form.lookahead);
  const BlockForm block{form.extra_keys, std::span(tokens).first(lookahead_)};
  ByteBuffer whole;
  const PreimageParts parts =
      WriteBlockPreimage(form_, {}, std::span(tokens).first(1), {keys, {}, block}, whole);
  const size_t tail_end = lookahead_ == 0 ? whole.size() : parts.lookahead_begin;
  const size_t end_begin = lookahead_ == 0 ? whole.size() : parts.lookahead_end;
  tail_.Clear();
  tail_.Put(whole.at(parts.tokens_end), tail_end - parts.tokens_end);
  tail_.Room(kShortTail);  // PutTail reads kShortTail bytes even if the tail is shorter.
  end_.Clear();
  end_.Put(whole.at(end_begin), whole.size() - end_begin);
}

bool BlockTemplate::Fits(size_t tokens) const {
  const size_t most = kHeadMax + (tokens + lookahead_) * kPickleIntMax + tail_.size() + end_.size();
  return tokens > 0 && (form_ == Serialisation::kCbor || most < kPickleFrameTarget);
}

std::span<const uint8_t> BlockTemplate::Write(const Digest& parent, std::span<const TokenId> tokens,
                                              std::span<const TokenId> lookahead,
                                              ByteBuffer& out) const {
  KV_DCHECK(Fits(tokens.size()));
  KV_DCHECK(lookahead.size() == lookahead_);
  out.Clear();
  uint8_t* const start = out.Room(kHeadMax + (tokens.size() + lookahead_) * kPickleIntMax +
                                  tail_.size() + kShortTail + end_.size());
  const bool pickle = form_ == Serialisation::kPickle;
  out.SetEnd(pickle ? PutPickle(start, parent, tokens, lookahead)
                    : PutCbor(start, parent, tokens, lookahead));
  return out.bytes();
}

uint8_t* BlockTemplate::PutPickle(uint8_t* at, const Digest& parent,
                                  std::span<const TokenId> tokens,
                                  std::span<const TokenId> lookahead) const {
  constexpr uint8_t kProtocol[] = {0x80, 5};
  constexpr uint8_t kFrame = 0x95, kShortBytes = 'C', kMemoize = 0x94, kMark = '(', kTuple = 't';
  constexpr uint8_t kTupleOfOne = 0x85;
  std::memcpy(at, kProtocol, 2);
  at[2] = kFrame;
  uint8_t* const length = at + 3;
  at[11] = kShortBytes;
  at[12] = parent.size;
  at = PutDigest(at + 13, parent);
  *at++ = kMemoize;
  const bool marked = tokens.size() > 3;
  if (marked) *at++ = kMark;
  at = PutPickleInts(at, tokens);
  *at++ = marked ? kTuple : static_cast<uint8_t>(kTupleOfOne + tokens.size() - 1);
  *at++ = kMemoize;
  at = PutTail(at);
  if (!lookahead.empty()) {
    at = PutPickleInts(at, lookahead);
    std::memcpy(at, end_.bytes().data(), end_.size());
    at += end_.size();
  }
  StoreLittle<uint64_t>(length, static_cast<uint64_t>(at - length - 8));
  return at;
}

uint8_t* BlockTemplate::PutCbor(uint8_t* at, const Digest& parent, std::span<const TokenId> tokens,
                                std::span<const TokenId> lookahead) const {
  constexpr uint8_t kArrayOfThree = kCborArray | 3;
  constexpr uint8_t kShortBytesMax = 23;
  *at++ = kArrayOfThree;
  if (parent.size <= kShortBytesMax) {
    *at++ = static_cast<uint8_t>(kCborBytes | parent.size);
  } else {
    *at++ = kCborBytes | 24;
    *at++ = parent.size;
  }
  at = PutDigest(at, parent);
  at = PutCborHead(at, kCborArray, tokens.size());
  at = PutTail(PutCborInts(at, tokens));
  // A CBOR array has no end mark, so no bytes follow the lookahead.
  return lookahead.empty() ? at : PutCborInts(at, lookahead);
}

uint8_t* BlockTemplate::PutTail(uint8_t* at) const {
  const uint8_t* tail = tail_.bytes().data();
  if (tail_.size() <= kShortTail) {
    std::memcpy(at, tail, kShortTail);
  } else {
    std::memcpy(at, tail, tail_.size());
  }
  return at + tail_.size();
}

}  // namespace kvcast::internal
