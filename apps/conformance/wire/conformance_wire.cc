// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "apps/conformance/conformance.h"
#include "apps/conformance/wire/wire_record.h"
#include "apps/support/file.h"
#include "apps/support/recording_paths.h"
#include "kvcast/wire/wire.h"

namespace kvcast::tools {
namespace {

namespace fs = std::filesystem;

// Counts the checks of one file and keeps the line of the first difference.
class FileChecks {
 public:
  FileChecks(std::string path, ConformanceReport& report)
      : path_(std::move(path)), report_(report) {}

  void set_record(std::string name) { record_ = std::move(name); }
  void Unsupported() { ++report_.unsupported; }
  void Check(bool equal, const std::string& difference) {
    ++report_.compared;
    if (equal) {
      ++report_.equal;
    } else if (!std::exchange(differs_, true)) {
      report_.first_differences.push_back(path_ + ": " + record_ + ": " + difference);
    }
  }

 private:
  const std::string path_;
  ConformanceReport& report_;
  std::string record_;
  bool differs_ = false;
};

// Describes the first difference of two payloads, for people.
std::string FirstDifference(std::span<const uint8_t> ours, std::span<const uint8_t> recorded) {
  const auto [first, ignored] =
      std::mismatch(ours.begin(), ours.end(), recorded.begin(), recorded.end());
  return " differs from byte " + std::to_string(first - ours.begin()) + " (" +
         std::to_string(ours.size()) + " bytes, recorded " + std::to_string(recorded.size()) + ")";
}

void CheckBytes(std::span<const uint8_t> ours, std::span<const uint8_t> recorded,
                const std::string& name, FileChecks& checks) {
  const bool equal = std::equal(ours.begin(), ours.end(), recorded.begin(), recorded.end());
  checks.Check(equal, equal ? name : name + FirstDifference(ours, recorded));
}

void CheckBatch(const WireRecord& record, const EventBatch& batch, FileChecks& checks) {
  checks.Check(std::bit_cast<uint64_t>(batch.ts) == record.ts_bits, "ts differs");
  checks.Check(batch.data_parallel_rank == record.decoded.data_parallel_rank,
               "data_parallel_rank differs");
  const std::vector<Event>& recorded = record.decoded.events;
  checks.Check(batch.events.size() == recorded.size(), std::to_string(batch.events.size()) +
                                                           " events decoded, recorded " +
                                                           std::to_string(recorded.size()));
  for (size_t i = 0; i < std::min(batch.events.size(), recorded.size()); ++i) {
    checks.Check(batch.events[i] == recorded[i], "event " + std::to_string(i) + " differs");
  }
}

void CheckDecode(const WireRecord& record, FileChecks& checks) {
  EventBatch batch;
  DecodeCounts counts;
  const Status status = DecodeBatch(record.payload, WireLimits(), batch, counts);
  checks.Check(status.ok(), "decode: " + status.ToString());
  if (!status.ok()) return;
  checks.Check(counts.unknown_fields == 0, "unknown fields were skipped");
  CheckBatch(record, batch, checks);
}

void CheckEncode(const WireRecord& record, FileChecks& checks) {
  std::vector<uint8_t> payload;
  const Status status = EncodeBatch(record.decoded, *record.dialect, payload);
  checks.Check(status.ok(), "encode: " + status.ToString());
  if (status.ok()) CheckBytes(payload, record.payload, "encoded payload", checks);
}

// The payload file is checked only if it exists beside the records.
void CheckPayloadFile(const WireRecord& record, const fs::path& folder, FileChecks& checks) {
  if (record.file.empty()) return;
  std::ifstream file(folder / record.file, std::ios::binary);
  if (!file) return;
  const std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
  CheckBytes(bytes, record.payload, "file " + record.file, checks);
}

void CheckRecord(const WireRecord& record, const fs::path& folder, FileChecks& checks) {
  checks.set_record(record.name);
  if (record.unknown_fields) return checks.Unsupported();
  CheckDecode(record, checks);
  if (!record.dialect) return checks.Unsupported();
  CheckEncode(record, checks);
  CheckPayloadFile(record, folder, checks);
}

Status CheckFile(const std::string& path, ConformanceReport& report) {
  const Result<std::string> content = ReadFile(path);
  if (!content.ok()) return content.status();
  FileChecks checks(path, report);
  const std::vector<std::string_view> lines = SplitLines(*content);
  size_t records = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const Result<WireRecord> record = ParseWireRecord(lines[i]);
    if (!record.ok()) {
      const std::string place = path + ":" + std::to_string(i + 1) + ": ";
      return {record.status().code(), place + record.status().message()};
    }
    CheckRecord(*record, fs::path(path).parent_path(), checks);
    ++records;
  }
  if (records == 0) return {StatusCode::kMalformed, path + ": no wire record"};
  ++report.files;
  return {};
}

bool IsWireFile(const std::string& path) {
  return HasExtension(path, ".jsonl") && LooksLikeWireRecord(FirstLine(path));
}

}  // namespace

Status RunWireConformance(const std::vector<std::string>& paths, ConformanceReport& report) {
  const Result<std::vector<std::string>> files = RecordingPaths(paths, IsWireFile, "wire file");
  if (!files.ok()) return files.status();
  for (const std::string& file : *files) {
    if (Status status = CheckFile(file, report); !status.ok()) return status;
  }
  return {};
}

}  // namespace kvcast::tools
