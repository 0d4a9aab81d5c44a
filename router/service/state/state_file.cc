// SPDX-License-Identifier: Apache-2.0
#include "router/service/state/state_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace kvcast::router {
namespace {

using Checksum = std::array<uint64_t, 2>;

constexpr std::string_view kFileMagic = "kvcast";
constexpr uint32_t kByteOrder = 0x01020304;
constexpr size_t kHeadStart = sizeof(StateMagic) + sizeof(uint64_t);
constexpr size_t kMaxFingerprints = 64;
constexpr size_t kBufferBytes = size_t{1} << 18;

Checksum ChecksumOf(const XXH128_hash_t& hash) { return {hash.high64, hash.low64}; }

void EncodePosition(const SavedPosition& position, FieldWriter& to) {
  to.Bool(position.epoch.has_value());
  if (position.epoch) {
    to.Fixed(position.epoch->high);
    to.Fixed(position.epoch->low);
  }
  to.Int(position.first_seq);
  to.Int(position.next_seq);
  to.Bool(position.complete);
  to.Int(position.fingerprints.size());
  for (const BatchFingerprint& known : position.fingerprints) {
    to.Int(known.seq);
    to.Fixed(known.hash[0]);
    to.Fixed(known.hash[1]);
  }
}

SavedPosition PositionFrom(FieldReader& from) {
  SavedPosition position;
  if (from.Bool()) {
    position.epoch.emplace();
    position.epoch->high = from.Fixed();
    position.epoch->low = from.Fixed();
  }
  position.first_seq = from.Int();
  position.next_seq = from.Int();
  position.complete = from.Bool();
  for (size_t n = from.Int(kMaxFingerprints); n > 0 && from.ok(); --n) {
    BatchFingerprint known;
    known.seq = from.Int();
    known.hash[0] = from.Fixed();
    known.hash[1] = from.Fixed();
    position.fingerprints.push_back(known);
  }
  return position;
}

std::vector<uint8_t> Copy(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

StateMagic StateMagicOf(std::string_view name) {
  StateMagic magic{};
  std::memcpy(magic.data(), name.data(), name.size());
  std::memcpy(magic.data() + 8, &kStateVersion, sizeof(kStateVersion));
  std::memcpy(magic.data() + 12, &kByteOrder, sizeof(kByteOrder));
  return magic;
}

Status CheckStateMagic(std::string_view name, const StateMagic& magic) {
  const StateMagic own = StateMagicOf(name);
  if (std::memcmp(magic.data(), own.data(), 8) != 0) {
    return {StatusCode::kMalformed, "not a saved state of kvcast"};
  }
  if (magic == own) return Status();
  return {StatusCode::kFailedPrecondition, "another version or byte order of saved state"};
}

uint64_t SecretCheck(uint64_t secret) {
  constexpr std::string_view kText = "kvcast saved state";
  return XXH3_64bits_withSeed(kText.data(), kText.size(), XXH3_64bits(&secret, sizeof(secret)));
}

std::vector<uint8_t> EncodeHead(const StateHead& head, std::span<const SavedWorker> workers) {
  FieldWriter to;
  to.Fixed(head.secret_check);
  to.Int(static_cast<uint64_t>(head.saved_at_ms));
  to.Int(workers.size());
  for (const SavedWorker& worker : workers) {
    to.Text(worker.registration);
    EncodePosition(worker.position, to);
    to.Bytes(worker.source);
    to.Bytes(worker.learned);
  }
  return to.Take();
}

struct FreeHash {
  void operator()(XXH3_state_t* hash) const { XXH3_freeState(hash); }
};

// Writes all bytes to the file, and adds them to the checksum.
class StateFileWriter::File {
 public:
  explicit File(int fd) : fd_(fd), buffer_(kBufferBytes), hash_(XXH3_createState()) {
    XXH3_128bits_reset(hash_.get());
  }

  ImageSink& sink() { return sink_; }
  int fd() const { return fd_; }
  int error() const { return error_; }
  Checksum checksum() const { return ChecksumOf(XXH3_128bits_digest(hash_.get())); }

 private:
  void Write(std::span<const uint8_t> bytes) {
    XXH3_128bits_update(hash_.get(), bytes.data(), bytes.size());
    while (!bytes.empty() && error_ == 0) {
      const ssize_t written = write(fd_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) error_ = errno;
      if (written > 0) bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }

  const int fd_;
  std::vector<uint8_t> buffer_;
  const std::unique_ptr<XXH3_state_t, FreeHash> hash_;
  int error_ = 0;
  ImageSink sink_{buffer_, [this](std::span<const uint8_t> bytes) { Write(bytes); }};
};

StateFileWriter::StateFileWriter(int fd, std::vector<uint8_t> head)
    : head_(std::move(head)), file_(std::make_unique<File>(fd)) {}
StateFileWriter::~StateFileWriter() = default;

int StateFileWriter::Write(const FrozenShard& frozen) {
  const StateMagic magic = StateMagicOf(kFileMagic);
  const uint64_t size = head_.size();
  ImageSink& sink = file_->sink();
  sink.Put(magic.data(), magic.size());
  sink.Put(&size, sizeof(size));
  sink.Put(head_.data(), head_.size());
  frozen.WriteRuns(sink);
  sink.FlushAll();
  const Checksum checksum = file_->checksum();
  sink.Put(checksum.data(), sizeof(checksum));
  sink.FlushAll();
  if (file_->error() != 0) return file_->error();
  // For a pipe, fsync fails with EINVAL.
  return fsync(file_->fd()) == 0 || errno == EINVAL ? 0 : errno;
}

void StateFile::Unmap::operator()(const uint8_t* data) const {
  munmap(const_cast<uint8_t*>(data), size);
}

Result<StateFile> StateFile::Open(const std::string& path, uint64_t secret_check) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    return Status(StatusCode::kUnavailable, path + ": " + std::strerror(errno));
  }
  return Read(file, path, secret_check);
}

Result<StateFile> StateFile::Read(const Descriptor& fd, const std::string& name,
                                  uint64_t secret_check) {
  const auto failed = [&name](StatusCode code, const std::string& why) {
    return Status(code, name + ": " + why);
  };
  struct stat info = {};
  if (fstat(fd.get(), &info) != 0) return failed(StatusCode::kUnavailable, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return failed(StatusCode::kMalformed, "not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size < kHeadStart + sizeof(Checksum)) return failed(StatusCode::kMalformed, "too short");
  void* const data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return failed(StatusCode::kUnavailable, std::strerror(errno));
  StateFile file;
  file.data_ = Mapping(static_cast<const uint8_t*>(data), Unmap{size});
  Status status = file.Parse(secret_check);
  if (!status.ok()) return failed(status.code(), status.message());
  return file;
}

Status StateFile::Parse(uint64_t secret_check) {
  const Status damaged(StatusCode::kMalformed, "the file is damaged or not complete");
  StateMagic magic;
  std::memcpy(magic.data(), data_.get(), magic.size());
  if (Status status = CheckStateMagic(kFileMagic, magic); !status.ok()) return status;
  const std::span<const uint8_t> content = bytes().first(bytes().size() - sizeof(Checksum));
  const Checksum checksum = ChecksumOf(XXH3_128bits(content.data(), content.size()));
  if (std::memcmp(content.data() + content.size(), checksum.data(), sizeof(checksum)) != 0) {
    return damaged;
  }
  FieldReader from(content.subspan(sizeof(StateMagic)));
  FieldReader head(from.Raw(from.Fixed()));
  if (!from.ok() || !ReadHead(head)) return damaged;
  if (head_.secret_check != secret_check) {
    return {StatusCode::kFailedPrecondition, "the state was saved with another secret"};
  }
  return ReadRuns(content.last(from.left())) ? Status() : damaged;
}

bool StateFile::ReadHead(FieldReader& from) {
  head_.secret_check = from.Fixed();
  head_.saved_at_ms = static_cast<int64_t>(from.Int());
  const size_t workers = from.Count(1);
  for (size_t i = 0; i < workers && from.ok(); ++i) {
    SavedWorker worker;
    worker.registration = from.Text();
    worker.position = PositionFrom(from);
    worker.source = Copy(from.Bytes());
    worker.learned = Copy(from.Bytes());
    workers_.push_back(std::move(worker));
  }
  runs_of_.resize(workers_.size());
  return from.AtEnd();
}

// Notes where the runs of each worker are.
bool StateFile::ReadRuns(std::span<const uint8_t> runs) {
  RunImage run;
  FieldReader from(runs);
  while (!from.AtEnd()) {
    const auto place = static_cast<uint64_t>(runs.data() - data_.get()) + runs.size() - from.left();
    if (!run.ReadHolders(from)) return false;
    run.AddTo(size_);
    for (const RunImage::Held& held : run.holders) {
      if (held.holder.worker >= runs_of_.size()) return false;
      std::vector<uint64_t>& places = runs_of_[held.holder.worker];
      if (places.empty() || places.back() != place) places.push_back(place);
    }
  }
  return true;
}

Status StateFile::Restore(PrefixIndex& index, WorkerId worker, uint32_t number) const {
  auto place = runs_of_[number].begin();
  const auto next_run = [&](RunImage& run) {
    if (place == runs_of_[number].end()) return false;
    FieldReader from(bytes().subspan(*place++));
    return run.Read(from);
  };
  return IndexImage::Restore(index, worker, number, workers_[number].learned, next_run);
}

}  // namespace kvcast::router
