// SPDX-License-Identifier: Apache-2.0
#include "router/service/join/state_sender.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "router/service/join/state_stream.h"
#include "src/base/clock.h"
#include "src/base/descriptor.h"
#include "src/base/version.h"

namespace kvcast::router {
namespace {

constexpr size_t kSentPieceBytes = 512 << 10;
constexpr int kPipeBytes = 1 << 20;
constexpr int kChildMs = 10'000;  // longest wait for a byte from a child

Status PipeFailed(const char* what) {
  return {StatusCode::kUnavailable, std::string(what) + ": " + std::strerror(errno)};
}

// Replaces `piece` by the next bytes of the pipe, at most kSentPieceBytes. False: the pipe has
// ended.
Result<bool> ReadPipe(const Descriptor& pipe, std::string& piece) {
  size_t size = 0;
  piece.resize(kSentPieceBytes);
  while (size < kSentPieceBytes) {
    struct pollfd ready = {.fd = pipe.get(), .events = POLLIN, .revents = 0};
    const int polled = poll(&ready, 1, kChildMs);
    if (polled < 0 && errno == EINTR) continue;
    if (polled < 0) return PipeFailed("poll");
    if (polled == 0) return Status(StatusCode::kUnavailable, "the child process has stopped");
    const ssize_t got = read(pipe.get(), piece.data() + size, kSentPieceBytes - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return PipeFailed("the pipe cannot be read");
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  const bool more = size == kSentPieceBytes;
  piece.resize(size);
  return more;
}

}  // namespace

// One reply. The HTTP server destroys the object when the reply or the connection has ended.
class StateSender::Sending {
 public:
  Sending(StateSender& sender, std::string peer)
      : sender_(sender), peer_(std::move(peer)), begin_ns_(SteadyNs()) {}
  // The thread that owns all sockets must not wait for the end of a child.
  ~Sending() {
    if (save_) sender_.Abandon(std::move(save_));
    if (bytes_ > 0) Finish();
    sender_.sending_ = false;
  }
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;

  // Empty: the stream has ended, or has failed.
  std::string Next() {
    std::string piece;
    if (status_.ok() && !ended_) status_ = Advance(piece);
    if (!status_.ok()) piece.clear();
    bytes_ += piece.size();
    sender_.bytes_ += piece.size();
    return piece;
  }

 private:
  size_t shards() const { return sender_.router_.index.shards(); }

  Status Advance(std::string& piece) {
    if (bytes_ == 0) {
      ++sender_.sends_;
      piece = stream_.Begin({std::string(Version()), sender_.router_.secret, shards()});
      return Status();
    }
    if (shard_ == shards()) {
      ended_ = true;
      piece = stream_.End();
      return Status();
    }
    if (!save_) {
      if (Status status = BeginShard(); !status.ok()) return status;
    }
    std::string read;
    const auto more = ReadPipe(pipe_, read);
    if (!more.ok()) return more.status();
    if (!read.empty()) piece = stream_.Part(read);
    if (*more) return Status();
    piece += stream_.EndShard();
    Status status = save_->Wait();
    save_.reset();
    ++shard_;
    return status;
  }

  Status BeginShard() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return PipeFailed("no pipe");
    pipe_ = Descriptor(ends[0]);
    // The parent closes its copy of the write end, so that the pipe ends when the child ends.
    const Descriptor child_end(ends[1]);
    (void)fcntl(ends[1], F_SETPIPE_SZ, kPipeBytes);  // a smaller pipe is only slower
    save_ = std::make_unique<ShardSave>();
    save_->Begin(sender_.router_, shard_, child_end.get());
    workers_ += save_->workers();
    return Status();
  }

  void Finish() {
    if (status_.ok() && !ended_) {
      status_ = Status(StatusCode::kUnavailable, "the other router closed the connection");
    }
    if (!status_.ok()) ++sender_.errors_;
    if (sender_.log_ == nullptr) return;
    if (status_.ok()) {
      sender_.log_->Write(log_events::kStateSent, peer_,
                          {{"workers", workers_},
                           {"bytes", bytes_},
                           {"seconds", static_cast<double>(SteadyNs() - begin_ns_) / 1e9}});
    } else {
      sender_.log_->Write(log_events::kStateSendFailed, peer_, {{"reason", status_.message()}});
    }
  }

  StateSender& sender_;
  const std::string peer_;
  const int64_t begin_ns_;
  StateStreamWriter stream_;
  size_t shard_ = 0;
  size_t workers_ = 0;
  uint64_t bytes_ = 0;
  bool ended_ = false;
  Status status_;
  Descriptor pipe_;  // the read end
  std::unique_ptr<ShardSave> save_;
};

StateSender::StateSender(SavedRouter router, Logger* log) : router_(std::move(router)), log_(log) {}

// Ends the child of `save`, and waits for the child that was abandoned before.
void StateSender::Abandon(std::unique_ptr<ShardSave> save) {
  if (save) save->Kill();
  const MutexLock lock(mutex_);
  abandoned_.swap(save);
}

HttpReply StateSender::Answer(const HttpRequest& request) {
  if (sending_.exchange(true)) return HttpError(503, "the state is being sent to another router");
  Abandon(nullptr);
  const auto sending = std::make_shared<Sending>(*this, request.peer);
  HttpReply reply;
  reply.content_type = "application/octet-stream";
  reply.next_piece = [sending] { return sending->Next(); };
  return reply;
}

}  // namespace kvcast::router
