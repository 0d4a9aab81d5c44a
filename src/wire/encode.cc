// SPDX-License-Identifier: Apache-2.0
#include <variant>

#include "src/base/check.h"
#include "src/wire/batch_encoder.h"
#include "src/wire/encodable.h"
#include "src/wire/event_writer.h"

namespace kvcast {
namespace wire {
namespace {

// Number of fields that are written. Nil fields after the first `always` fields are left out. An
// array can leave out only fields at its end.
template <typename EventType>
size_t CountWritten(const EventType& event, const EventLayout& layout, bool maps) {
  size_t count = layout.always;
  for (size_t i = layout.always; i < layout.fields.size(); ++i) {
    if (!IsNil(event, layout.fields[i])) count = maps ? count + 1 : i + 1;
  }
  return count;
}

void WriteHead(Writer& out, std::string_view tag, size_t fields, bool wide, bool maps) {
  if (maps) {
    wide ? out.WideMapHead(fields + 1) : out.MapHead(fields + 1);
    out.Text(kTypeKey);
  } else {
    out.ArrayHead(fields + 1);
  }
  out.Text(tag);
}

// Writes the fields from index `first` on.
template <typename EventType>
void WriteFields(Writer& out, const EventType& event, const EventLayout& layout, size_t first,
                 size_t written, bool maps) {
  for (size_t i = first; i < (maps ? layout.fields.size() : written); ++i) {
    const Field field = layout.fields[i];
    if (maps) {
      if (i >= layout.always && IsNil(event, field)) continue;
      out.Text(FieldKey(field));
    }
    WriteField(out, event, field);
  }
}

template <typename EventType>
void WriteEvent(Writer& out, const EventType& event, std::string_view tag,
                const EventLayout& layout, bool maps) {
  const size_t count = CountWritten(event, layout, maps);
  WriteHead(out, tag, count, layout.wide_head, maps);
  WriteFields(out, event, layout, 0, count, maps);
}

std::string_view TagOf(EventKind kind) { return kEventTags[static_cast<size_t>(kind)]; }

void Write(Writer& out, const BlockStored& event, const Layout& layout) {
  WriteEvent(out, event, TagOf(EventKind::kStored), layout.stored, layout.maps);
}
void Write(Writer& out, const BlockRemoved& event, const Layout& layout) {
  WriteEvent(out, event, TagOf(EventKind::kRemoved), layout.removed, layout.maps);
}
void Write(Writer& out, const AllBlocksCleared& event, const Layout& layout) {
  WriteEvent(out, event, TagOf(EventKind::kCleared), layout.cleared, layout.maps);
}

}  // namespace

BatchEncoder::BatchEncoder(Dialect dialect, double ts, size_t events, std::vector<uint8_t>& out)
    : layout_(LayoutOf(dialect)), out_(out), start_(out.size()), events_(events), writer_(out) {
  if (events > kMaxLength) {
    status_ = TooManyEvents();
    return;
  }
  writer_.ArrayHead(layout_.rank ? 3 : 2);
  writer_.Float(ts);
  writer_.ArrayHead(events);
}

template <typename EventType>
bool BatchEncoder::IsEncodable(const EventType& event) {
  const char* problem = ProblemOf(event);
  if (problem == nullptr) return true;
  status_ = BadEvent(added_, problem);
  return false;
}

template <typename EventType>
void BatchEncoder::AddChecked(const EventType& event) {
  if (!status_.ok() || !IsEncodable(event)) return;
  Write(writer_, event, layout_);
  ++added_;
}

void BatchEncoder::AddEachHash(const BlockRemoved& events) {
  if (!status_.ok() || !IsEncodable(events)) return;
  added_ += events.block_hashes.size();
  if (events.block_hashes.empty()) return;
  const EventLayout& layout = layout_.removed;
  KV_DCHECK(layout.fields[0] == Field::kBlockHashes);
  const size_t count = CountWritten(events, layout, layout_.maps);
  const size_t start = writer_.position();
  WriteHead(writer_, TagOf(EventKind::kRemoved), count, layout.wide_head, layout_.maps);
  if (layout_.maps) writer_.Text(FieldKey(Field::kBlockHashes));
  writer_.ArrayHead(1);
  const size_t hash_start = writer_.position();
  WriteHash(writer_, events.block_hashes[0]);
  const size_t hash_end = writer_.position();
  WriteFields(writer_, events, layout, 1, count, layout_.maps);
  // The other events differ only in the hash.
  const auto before = writer_.written(start, hash_start);
  const auto after = writer_.written(hash_end, writer_.position());
  before_hash_.assign(before.begin(), before.end());
  after_hash_.assign(after.begin(), after.end());
  for (size_t i = 1; i < events.block_hashes.size(); ++i) {
    writer_.Raw(before_hash_);
    WriteHash(writer_, events.block_hashes[i]);
    writer_.Raw(after_hash_);
  }
}

void BatchEncoder::Add(const BlockStored& event) { AddChecked(event); }
void BatchEncoder::Add(const BlockRemoved& event) { AddChecked(event); }
void BatchEncoder::Add(const AllBlocksCleared& event) { AddChecked(event); }

Status BatchEncoder::Finish(std::optional<int64_t> data_parallel_rank) {
  if (!status_.ok()) {
    writer_.Close();
    out_.resize(start_);
    return status_;
  }
  KV_CHECK(added_ == events_);
  if (layout_.rank && data_parallel_rank) {
    writer_.Signed(*data_parallel_rank);
  } else if (layout_.rank) {
    writer_.Nil();
  }
  writer_.Close();
  return {};
}

}  // namespace wire

Status EncodeBatch(const EventBatch& batch, Dialect dialect, std::vector<uint8_t>& out) {
  wire::BatchEncoder encoder(dialect, batch.ts, batch.events.size(), out);
  for (const Event& event : batch.events) {
    std::visit([&encoder](const auto& e) { encoder.Add(e); }, event);
  }
  return encoder.Finish(batch.data_parallel_rank);
}

}  // namespace kvcast
