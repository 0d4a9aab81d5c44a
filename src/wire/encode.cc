// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>
#include <variant>

#include "src/wire/encodable.h"
#include "src/wire/event_writer.h"
#include "src/wire/layout.h"
#include "src/wire/writer.h"

namespace kvcast {
namespace {

using wire::EventKind;
using wire::EventLayout;
using wire::Field;
using wire::Layout;
using wire::Writer;

// Fields that are written: all but the nil ones beyond the first `always`. An array can only leave
// out its end.
template <typename EventType>
size_t CountWritten(const EventType& event, const EventLayout& layout, bool maps) {
  size_t count = layout.always;
  for (size_t i = layout.always; i < layout.fields.size(); ++i) {
    if (!wire::IsNil(event, layout.fields[i])) count = maps ? count + 1 : i + 1;
  }
  return count;
}

void WriteTag(Writer& out, EventKind kind, size_t fields, bool maps) {
  if (maps) {
    out.MapHead(fields + 1);
    out.Text(wire::kTypeKey);
  } else {
    out.ArrayHead(fields + 1);
  }
  out.Text(wire::kEventTags[static_cast<size_t>(kind)]);
}

template <typename EventType>
void WriteEvent(Writer& out, const EventType& event, EventKind kind, const EventLayout& layout,
                bool maps) {
  const size_t count = CountWritten(event, layout, maps);
  WriteTag(out, kind, count, maps);
  for (size_t i = 0; i < (maps ? layout.fields.size() : count); ++i) {
    const Field field = layout.fields[i];
    if (maps) {
      if (i >= layout.always && wire::IsNil(event, field)) continue;
      out.Text(wire::FieldKey(field));
    }
    wire::WriteField(out, event, field);
  }
}

void WriteEvent(Writer& out, const Event& event, const Layout& layout) {
  if (const auto* stored = std::get_if<BlockStored>(&event)) {
    WriteEvent(out, *stored, EventKind::kStored, layout.stored, layout.maps);
  } else if (const auto* removed = std::get_if<BlockRemoved>(&event)) {
    WriteEvent(out, *removed, EventKind::kRemoved, layout.removed, layout.maps);
  } else {
    WriteTag(out, EventKind::kCleared, 0, layout.maps);
  }
}

}  // namespace

Status EncodeBatch(const EventBatch& batch, Dialect dialect, std::vector<uint8_t>& out) {
  if (Status status = wire::CheckEncodable(batch); !status.ok()) return status;
  const Layout& layout = wire::LayoutOf(dialect);
  Writer writer(out);
  writer.ArrayHead(layout.rank ? 3 : 2);
  writer.Float(batch.ts);
  writer.ArrayHead(batch.events.size());
  for (const Event& event : batch.events) WriteEvent(writer, event, layout);
  if (!layout.rank) return {};
  if (batch.data_parallel_rank) {
    writer.Signed(*batch.data_parallel_rank);
  } else {
    writer.Nil();
  }
  return {};
}

}  // namespace kvcast
