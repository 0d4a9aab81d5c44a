// Fuzz target: captures of `kvcast tail --record`. The records that the reader returns are the
// bytes of the file. The times of the records give pauses within bounds. The output of `kvcast
// tail` has no control characters. Any compressed file gives at most the allowed number of bytes.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "apps/support/capture.h"
#include "apps/support/event_json.h"
#include "apps/support/file.h"
#include "apps/support/printable.h"
#include "kvcast/wire/wire.h"
#include "src/base/check.h"
#include "tests/fuzz/fuzz_input.h"

namespace kvcast::tools {
namespace {

constexpr size_t kUnpackedMax = 64 << 10;

void CheckPrinted(const CapturedMessage& message) {
  EventBatch batch;
  DecodeCounts counts;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(message.payload.data());
  if (!DecodeBatch({bytes, message.payload.size()}, WireLimits(), batch, counts).ok()) return;
  const auto is_plain = [](char c) { return c >= 0x20 && c < 0x7f; };
  for (const Event& event : batch.events) {
    KV_CHECK(std::ranges::all_of(Printable(DescribeEvent(event)), is_plain));
  }
  nlohmann::json json = BatchToJson(batch);
  json["topic"] = message.topic;
  const auto replace = nlohmann::json::error_handler_t::replace;
  KV_CHECK(std::ranges::all_of(json.dump(-1, ' ', true, replace), is_plain));
}

void CheckCapture(const std::string& bytes) {
  auto reader = CaptureReader::Parse(bytes);
  KV_CHECK(reader.ok() == bytes.starts_with(kCaptureMagic));
  fuzz::CheckReason(reader.status());
  if (!reader.ok()) return;
  std::string written(kCaptureMagic);
  double first = 0;
  int64_t records = 0;
  while (const auto message = reader->Next()) {
    written += EncodeRecord(*message);
    if (records++ == 0) first = message->time;
    for (const double speed : {1.0, 1e-300, 1e300}) {
      const int64_t ns = ReplayOffsetNs(first, message->time, speed);
      KV_CHECK(ns >= 0 && ns <= kMaxReplayOffsetNs);
    }
    CheckPrinted(*message);
  }
  KV_CHECK(bytes.starts_with(written));
  // Only a record that is cut off may follow. If the last byte of the records is missing, the
  // reader returns one record less.
  if (records == 0) return;
  auto cut = CaptureReader::Parse(written.substr(0, written.size() - 1));
  for (int64_t i = 1; i < records; ++i) KV_CHECK(cut->Next().has_value());
  KV_CHECK(!cut->Next());
}

void CheckOne(std::string bytes) {
  const auto unpacked = UnpackFile(bytes, "capture", kUnpackedMax);
  fuzz::CheckReason(unpacked.status());
  if (unpacked.ok()) {
    KV_CHECK(unpacked->size() <= kUnpackedMax);
    CheckCapture(*unpacked);
  }
  CheckCapture(bytes);
}

}  // namespace
}  // namespace kvcast::tools

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kvcast::tools::CheckOne(std::string(kvcast::fuzz::TextOf({data, size})));
  return 0;
}
