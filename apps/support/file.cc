// SPDX-License-Identifier: Apache-2.0
#include "apps/support/file.h"

#include <zlib.h>
#include <zstd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <system_error>

namespace kvcast::tools {
namespace {

constexpr size_t kChunk = size_t{1} << 18;

Status TooLarge(const std::string& path, size_t max_bytes) {
  return {StatusCode::kLimit, path + ": larger than " + std::to_string(max_bytes) + " bytes"};
}

Status Damaged(const std::string& path, const char* format) {
  return {StatusCode::kMalformed, path + ": damaged " + format + " data"};
}

Result<std::string> ReadRaw(const std::string& path, size_t max_bytes) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Status(StatusCode::kNotFound, path + ": is a folder, not a file");
  }
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) {
    const auto code = errno == ENOENT ? StatusCode::kNotFound : StatusCode::kUnavailable;
    return Status(code, path + ": " + std::strerror(errno));
  }
  std::string content;
  char buffer[1 << 16];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, file.get())) {
    if (content.size() + n > max_bytes) return TooLarge(path, max_bytes);
    content.append(buffer, n);
  }
  if (std::ferror(file.get())) return Status(StatusCode::kUnavailable, path + ": read error");
  return content;
}

Result<std::string> Gunzip(const std::string& path, const std::string& packed, size_t max_bytes) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 32) != Z_OK) return Damaged(path, "gzip");
  std::unique_ptr<z_stream, int (*)(z_stream*)> closer(&stream, &inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string content;
  std::string buffer(kChunk, '\0');
  for (int code = Z_OK; code != Z_STREAM_END;) {
    stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_out = static_cast<uInt>(buffer.size());
    code = inflate(&stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END) return Damaged(path, "gzip");
    content.append(buffer.data(), buffer.size() - stream.avail_out);
    if (content.size() > max_bytes) return TooLarge(path, max_bytes);
    if (code == Z_STREAM_END && stream.avail_in > 0) {  // gzip files may be concatenated
      if (inflateReset(&stream) != Z_OK) return Damaged(path, "gzip");
      code = Z_OK;
    } else if (code == Z_OK && stream.avail_in == 0 && stream.avail_out > 0) {
      return Damaged(path, "gzip");
    }
  }
  return content;
}

Result<std::string> Unzstd(const std::string& path, const std::string& packed, size_t max_bytes) {
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(), &ZSTD_freeDCtx);
  std::string content;
  std::string buffer(kChunk, '\0');
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  size_t hint = 0;
  bool full = false;
  while (in.pos < in.size || full) {
    ZSTD_outBuffer out{buffer.data(), buffer.size(), 0};
    hint = ZSTD_decompressStream(context.get(), &out, &in);
    if (ZSTD_isError(hint)) return Damaged(path, "zstd");
    content.append(buffer.data(), out.pos);
    full = out.pos == out.size;
    if (content.size() > max_bytes) return TooLarge(path, max_bytes);
  }
  if (hint != 0) return Damaged(path, "zstd");
  return content;
}

bool StartsWith(const std::string& content, std::string_view magic) {
  return content.compare(0, magic.size(), magic) == 0;
}

}  // namespace

Result<std::string> UnpackFile(std::string bytes, const std::string& path, size_t max_bytes) {
  if (bytes.size() > max_bytes) return TooLarge(path, max_bytes);
  if (StartsWith(bytes, "\x1f\x8b")) return Gunzip(path, bytes, max_bytes);
  if (StartsWith(bytes, "\x28\xb5\x2f\xfd")) return Unzstd(path, bytes, max_bytes);
  return bytes;
}

Result<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  auto raw = ReadRaw(path, max_bytes);
  if (!raw.ok()) return raw;
  return UnpackFile(std::move(raw).value(), path, max_bytes);
}

Status WriteFile(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.flush();
  if (file.good()) return {};
  return {StatusCode::kUnavailable, path + ": cannot be written"};
}

std::vector<std::string_view> SplitLines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

Result<std::string> FindDataFile(const std::string& name) {
  namespace fs = std::filesystem;
  std::vector<fs::path> folders;
  if (const char* configured = std::getenv("KVCAST_DATA_DIR")) folders.emplace_back(configured);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) folders.push_back(program.parent_path() / ".." / "share" / "kvcast");
  folders.emplace_back(KVCAST_SOURCE_DATA_DIR);
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / name, error)) return (folder / name).lexically_normal().string();
  }
  return Status(StatusCode::kNotFound, "data file " + name + " not found; set KVCAST_DATA_DIR");
}

}  // namespace kvcast::tools
