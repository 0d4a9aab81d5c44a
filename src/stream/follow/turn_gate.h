// TurnGate: lets another thread stop a working thread between two of its turns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/base/mutex.h"

namespace kvcast::stream {

// Thread-safe. One thread at a time works, and one thread at a time closes the gate.
class TurnGate {
 public:
  // For the working thread, around each turn. BeginTurn waits while the gate is closed.
  void BeginTurn() {
    const MutexLock lock(mutex_);
    while (closed_) changed_.Wait(mutex_);
    in_turn_ = true;
  }
  void EndTurn() {
    {
      const MutexLock lock(mutex_);
      in_turn_ = false;
      if (!closed_) return;
    }
    changed_.NotifyAll();
  }
  // Waits for the end of the turn in progress. No turn begins until Open.
  void Close() {
    const MutexLock lock(mutex_);
    closed_ = true;
    while (in_turn_) changed_.Wait(mutex_);
  }
  void Open() {
    {
      const MutexLock lock(mutex_);
      closed_ = false;
    }
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool closed_ KV_GUARDED_BY(mutex_) = false;
  bool in_turn_ KV_GUARDED_BY(mutex_) = false;
};

// One turn of the working thread.
class Turn {
 public:
  explicit Turn(TurnGate& gate) : gate_(gate) { gate_.BeginTurn(); }
  ~Turn() { gate_.EndTurn(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  TurnGate& gate_;
};

// Keeps the gate closed.
class ClosedGate {
 public:
  explicit ClosedGate(TurnGate& gate) : gate_(gate) { gate_.Close(); }
  ~ClosedGate() { gate_.Open(); }
  ClosedGate(const ClosedGate&) = delete;
  ClosedGate& operator=(const ClosedGate&) = delete;

 private:
  TurnGate& gate_;
};

}  // namespace kvcast::stream
