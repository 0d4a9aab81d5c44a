// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>

#include "kvcast/wire/wire.h"
#include "src/wire/event_decoder.h"
#include "src/wire/reader.h"

namespace kvcast {
namespace {

using wire::Kind;
using wire::Reader;
using wire::Value;

Status Malformed(std::string message) { return {StatusCode::kMalformed, std::move(message)}; }
Status CutShort() { return Malformed("the payload is cut short or is not MessagePack"); }
Status NotABatch(std::string why) { return Malformed("not a batch: " + std::move(why)); }

// Decodes one payload. Holds the state that the parts of the payload share.
class BatchDecoder {
 public:
  BatchDecoder(std::span<const uint8_t> payload, const WireLimits& limits,
               const DecodeOptions& options, EventBatch& batch)
      : in_(payload), limits_(limits), options_(options), budget_(limits), batch_(batch) {}

  Status Run();
  const DecodeCounts& counts() const { return counts_; }

 private:
  Status ReadArray(uint64_t elements);
  Status ReadMap(uint64_t pairs);
  Status ReadPair(std::string_view key);
  Status ReadTimestamp();
  Status ReadEvents();
  Status ReadEvent();
  bool ReadLikeLastRemove();
  void NoteRemove(const Reader& start, const uint8_t* single_hash, uint64_t unknown_fields);
  bool MergeRemove();
  Status ReadRank();
  Status SkipUnknown();

  Reader in_;
  const WireLimits& limits_;
  const DecodeOptions& options_;
  wire::BatchBudget budget_;
  EventBatch& batch_;
  DecodeCounts counts_;
  size_t decoded_ = 0;  // number of events at the front of batch_ that belong to this batch
  // The bytes of the latest decoded event, if that event removes one hash in the 9-byte form.
  // hash_offset is the offset of the lead byte of the hash.
  struct {
    std::span<const uint8_t> bytes;
    size_t hash_offset = 0;
    uint64_t unknown_fields = 0;
  } last_remove_;
  bool ts_seen_ = false;
  bool events_seen_ = false;
  bool rank_seen_ = false;
};

Status BatchDecoder::Run() {
  batch_.ts = 0;
  batch_.data_parallel_rank.reset();
  Value head;
  if (!in_.Next(head)) return CutShort();
  if (!head.is_container()) return NotABatch("neither array nor map");
  Status status = head.kind == Kind::kArray ? ReadArray(head.number) : ReadMap(head.number);
  if (!status.ok()) return status;
  if (!in_.at_end()) return Malformed("unread bytes after the batch");
  batch_.events.resize(decoded_);
  return {};
}

Status BatchDecoder::ReadArray(uint64_t elements) {
  if (elements < 2) return NotABatch("fewer than two elements");
  if (Status status = ReadTimestamp(); !status.ok()) return status;
  if (Status status = ReadEvents(); !status.ok()) return status;
  if (elements > 2) {
    if (Status status = ReadRank(); !status.ok()) return status;
  }
  for (uint64_t i = 3; i < elements; ++i) {
    if (Status status = SkipUnknown(); !status.ok()) return status;
  }
  return {};
}

Status BatchDecoder::ReadMap(uint64_t pairs) {
  for (uint64_t i = 0; i < pairs; ++i) {
    Reader at_key = in_;
    Value key;
    if (!at_key.Next(key) || !in_.Skip()) return CutShort();
    const std::string_view name = key.kind == Kind::kText ? key.as_view() : std::string_view();
    if (Status status = ReadPair(name); !status.ok()) return status;
  }
  if (!ts_seen_) return NotABatch("no ts");
  if (!events_seen_) return NotABatch("no events");
  return {};
}

Status BatchDecoder::ReadPair(std::string_view key) {
  const auto again = [](bool& seen) { return std::exchange(seen, true); };
  if (key == "ts") return again(ts_seen_) ? NotABatch("ts occurs twice") : ReadTimestamp();
  if (key == "events") return again(events_seen_) ? NotABatch("events occurs twice") : ReadEvents();
  if (key == "data_parallel_rank" || key == "attn_dp_rank") {
    return again(rank_seen_) ? NotABatch("the rank occurs twice") : ReadRank();
  }
  return SkipUnknown();
}

Status BatchDecoder::ReadTimestamp() {
  Value value;
  if (!in_.Next(value)) return CutShort();
  if (value.kind != Kind::kFloat && !value.is_integer()) return NotABatch("ts is not a number");
  batch_.ts = value.as_double();
  return {};
}

Status BatchDecoder::ReadRank() {
  Value value;
  if (!in_.Next(value)) return CutShort();
  if (value.kind == Kind::kNil) return {};
  if (!value.is_integer()) return NotABatch("data_parallel_rank is not an integer");
  if (value.kind == Kind::kUnsigned && value.number > INT64_MAX) {
    return NotABatch("data_parallel_rank is above 2^63 - 1");
  }
  batch_.data_parallel_rank = static_cast<int64_t>(value.number);
  return {};
}

Status BatchDecoder::SkipUnknown() {
  ++counts_.unknown_fields;
  const uint32_t depth_max = wire::FieldReader::DepthMax(limits_);
  switch (in_.SkipWithin(depth_max > 0 ? depth_max - 1 : 0)) {
    case Reader::SkipResult::kOk:
      return {};
    case Reader::SkipResult::kTooDeep:
      return {StatusCode::kLimit, "an unknown field of the batch is nested too deep"};
    case Reader::SkipResult::kMalformed:
      break;
  }
  return CutShort();
}

Status BatchDecoder::ReadEvents() {
  Value head;
  if (!in_.Next(head)) return CutShort();
  if (head.kind != Kind::kArray) return NotABatch("events is not an array");
  if (head.number > limits_.max_events) {
    return {StatusCode::kLimit, "more than max_events events in a batch"};
  }
  constexpr size_t kTrustedEvents = 32;
  const size_t trusted = kTrustedEvents + in_.remaining() / sizeof(Event);
  batch_.events.reserve(std::min<size_t>(head.number, trusted));
  for (uint64_t i = 0; i < head.number; ++i) {
    if (Status status = ReadEvent(); !status.ok()) return status;
  }
  return {};
}

// Fast path: most removes differ from the previous remove only in the hash.
bool BatchDecoder::ReadLikeLastRemove() {
  if (last_remove_.bytes.empty() || limits_.max_hashes == 0 || budget_.hashes == 0) return false;
  uint64_t hash = 0;
  if (!in_.NextLike(last_remove_.bytes, last_remove_.hash_offset, hash)) return false;
  --budget_.hashes;
  counts_.unknown_fields += last_remove_.unknown_fields;
  ++counts_.decoded;
  std::get<BlockRemoved>(batch_.events[decoded_ - 1]).block_hashes.emplace_back(hash);
  return true;
}

void BatchDecoder::NoteRemove(const Reader& start, const uint8_t* single_hash,
                              uint64_t unknown_fields) {
  last_remove_.bytes = {};
  if (single_hash == nullptr) return;
  last_remove_.bytes = {start.position(), in_.position()};
  last_remove_.hash_offset = static_cast<size_t>(single_hash - start.position());
  last_remove_.unknown_fields = unknown_fields;
}

// Merges the event after the decoded events into the last decoded event, if possible. False: not
// possible.
bool BatchDecoder::MergeRemove() {
  auto* removed = std::get_if<BlockRemoved>(&batch_.events[decoded_]);
  auto* before = decoded_ == 0 ? nullptr : std::get_if<BlockRemoved>(&batch_.events[decoded_ - 1]);
  if (removed == nullptr || before == nullptr) return false;
  if (removed->medium != before->medium || removed->group_idx != before->group_idx ||
      removed->locality != before->locality || removed->ownership != before->ownership) {
    return false;
  }
  before->block_hashes.insert(before->block_hashes.end(), removed->block_hashes.begin(),
                              removed->block_hashes.end());
  return true;
}

// True if the next value is a map with a 16-bit header although a shorter header is sufficient.
// REQUIRES: a next value exists.
bool HasWideHeader(const Reader& reader) {
  constexpr uint8_t kMap16 = 0xde;
  const uint8_t* const head = reader.position();
  return head[0] == kMap16 && head[1] == 0 && head[2] < 16;
}

Status BatchDecoder::ReadEvent() {
  if (options_.merge_removes && ReadLikeLastRemove()) return {};
  const Reader start = in_;
  const uint64_t unknown_fields = counts_.unknown_fields;
  const uint64_t skipped_fields = counts_.skipped_fields;
  const uint8_t* single_hash = nullptr;
  const wire::EventContext context{limits_, budget_, options_, counts_, single_hash};
  if (decoded_ == batch_.events.size()) batch_.events.emplace_back();
  const std::optional<Reject> reject = wire::DecodeEvent(in_, context, batch_.events[decoded_]);
  if (!reject) {
    ++counts_.decoded;
    const bool stored = std::holds_alternative<BlockStored>(batch_.events[decoded_]);
    const bool forked = counts_.skipped_fields > skipped_fields;
    if (stored && !forked && HasWideHeader(start)) ++counts_.wide_stores;
    if (!options_.merge_removes || !MergeRemove()) ++decoded_;
    if (!std::holds_alternative<BlockRemoved>(batch_.events[decoded_ - 1])) single_hash = nullptr;
    NoteRemove(start, single_hash, counts_.unknown_fields - unknown_fields);
    return {};
  }
  if (budget_.exceeded)
    return {StatusCode::kLimit, "the events of the batch together exceed a limit"};
  ++counts_.rejected[static_cast<size_t>(*reject)];
  in_ = start;
  return in_.Skip() ? Status() : CutShort();
}

void Add(const DecodeCounts& from, DecodeCounts& to) {
  to.decoded += from.decoded;
  to.unknown_fields += from.unknown_fields;
  to.wide_stores += from.wide_stores;
  to.skipped_fields += from.skipped_fields;
  to.component_fields += from.component_fields;
  for (size_t i = 0; i < kRejectReasons; ++i) to.rejected[i] += from.rejected[i];
}

}  // namespace

std::string_view RejectName(Reject reason) {
  switch (reason) {
    case Reject::kUnknownEvent:
      return "unknown_event";
    case Reject::kNoTag:
      return "no_tag";
    case Reject::kMissingField:
      return "missing_field";
    case Reject::kBadType:
      return "bad_type";
    case Reject::kBadValue:
      return "bad_value";
    case Reject::kDuplicateKey:
      return "duplicate_key";
    case Reject::kLimit:
      return "limit";
  }
  return "unknown";
}

Status DecodeBatch(std::span<const uint8_t> payload, const WireLimits& limits, EventBatch& batch,
                   DecodeCounts& counts) {
  return DecodeBatch(payload, limits, {}, batch, counts);
}

Status DecodeBatch(std::span<const uint8_t> payload, const WireLimits& limits,
                   const DecodeOptions& options, EventBatch& batch, DecodeCounts& counts) {
  if (payload.size() > limits.max_frame_bytes) {
    batch = {};
    return {StatusCode::kLimit, "the payload is longer than max_frame_bytes"};
  }
  BatchDecoder decoder(payload, limits, options, batch);
  Status status = decoder.Run();
  if (status.ok()) {
    Add(decoder.counts(), counts);
  } else {
    batch = {};
  }
  return status;
}

}  // namespace kvcast
