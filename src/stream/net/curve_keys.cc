// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "kvcast/stream/curve.h"

namespace kvcast {
namespace {

constexpr size_t kKeyChars = 40;
constexpr size_t kKeyBytes = 32;
// A key and its line end are shorter. The rest of a longer file is not read.
constexpr size_t kReadBytes = 256;

Status BadKeyFile(const std::string& path, const std::string& error) {
  return {StatusCode::kInvalidArgument, path + ": " + error};
}

Result<std::string> ReadPrivateFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return BadKeyFile(path, std::strerror(errno));
  struct stat info = {};
  std::array<char, kReadBytes> buffer;
  const bool has_info = fstat(fd, &info) == 0;
  const ssize_t size = has_info && S_ISREG(info.st_mode) ? read(fd, buffer.data(), kReadBytes) : -1;
  close(fd);
  if (size < 0) return BadKeyFile(path, "not a readable file");
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return BadKeyFile(path, "users other than the owner have access to this secret key; chmod 600");
  }
  return std::string(buffer.data(), static_cast<size_t>(size));
}

}  // namespace

Status CheckCurveKey(std::string_view key) {
  const auto invalid = [](const std::string& error) {
    return Status(StatusCode::kInvalidArgument, error);
  };
  if (key.size() != kKeyChars) {
    return invalid("a key has " + std::to_string(kKeyChars) + " characters, not " +
                   std::to_string(key.size()));
  }
  // libzmq reads only the part before the first NUL, and leaves the rest of `bytes` unset.
  const bool has_no_nul = key.find('\0') == std::string_view::npos;
  std::array<uint8_t, kKeyBytes> bytes;
  if (!has_no_nul || zmq_z85_decode(bytes.data(), std::string(key).c_str()) == nullptr) {
    return invalid("the key has characters that are not Z85");
  }
  return Status();
}

Result<CurveKeyPair> CurveKeyPair::Generate() {
  std::array<char, kKeyChars + 1> public_key;
  std::array<char, kKeyChars + 1> secret_key;
  if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) {
    return Status(StatusCode::kUnavailable, "libzmq is built without CURVE");
  }
  return CurveKeyPair{public_key.data(), secret_key.data()};
}

Result<CurveKeyPair> CurveKeyPair::Parse(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (Status status = CheckCurveKey(text); !status.ok()) return status;
  const std::string key(text);
  std::array<char, kKeyChars + 1> public_key;
  if (zmq_curve_public(public_key.data(), key.c_str()) != 0) {
    return Status(StatusCode::kUnavailable, "libzmq is built without CURVE");
  }
  return CurveKeyPair{public_key.data(), key};
}

Result<CurveKeyPair> CurveKeyPair::Load(const std::string& path) {
  const Result<std::string> text = ReadPrivateFile(path);
  if (!text.ok()) return text.status();
  auto keys = Parse(*text);
  if (!keys.ok() && keys.status().code() == StatusCode::kInvalidArgument) {
    return BadKeyFile(path, keys.status().message());
  }
  return keys;
}

}  // namespace kvcast
