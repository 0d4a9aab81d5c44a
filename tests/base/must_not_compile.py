#!/usr/bin/python3
"""Mistakes that the types must refuse. No mistake may compile, and each corrected form must compile.

usage: must_not_compile.py COMPILER SOURCE_DIR
SPDX-License-Identifier: Apache-2.0
"""
import subprocess
import sys

IDS = '#include "kvcast/core/ids.h"\n'
STATUS = '#include "kvcast/core/status.h"\n'
MUTEX = '#include "src/base/mutex.h"\n'
CASES = [  # (name, includes, mistake, corrected form)
    ("a number as an id", IDS, "kvcast::BlockId block = 3;", "kvcast::BlockId block(3);"),
    ("an id as a number", IDS, "kvcast::BlockId block(3); unsigned number = block;",
     "kvcast::BlockId block(3); unsigned number = block.value;"),
    ("a slot as a block", IDS, "kvcast::SlotId slot(3); kvcast::BlockId block = slot;",
     "kvcast::SlotId slot(3); kvcast::BlockId block(slot.value);"),
    ("a slot as a block, by an explicit conversion", IDS, "kvcast::SlotId slot(3); kvcast::BlockId block(slot);",
     "kvcast::SlotId slot(3); kvcast::BlockId block(slot.value);"),
    ("a comparison of a group and a worker", IDS,
     "bool same = kvcast::GroupIdx(1) == kvcast::WorkerId(1);",
     "bool same = kvcast::WorkerId(1) == kvcast::WorkerId(1);"),
    ("an addition of ids", IDS, "auto next = kvcast::Seq(1) + kvcast::Seq(1);",
     "auto next = kvcast::Seq(kvcast::Seq(1).value + 1);"),
    ("a group as the argument of a function of a worker", IDS,
     "void Remove(kvcast::WorkerId worker); void Run() { Remove(kvcast::GroupIdx(1)); }",
     "void Remove(kvcast::WorkerId worker); void Run() { Remove(kvcast::WorkerId(1)); }"),
    ("an ignored Status", STATUS,
     "kvcast::Status Try(); void Run() { Try(); }", "kvcast::Status Try(); bool Run() { return Try().ok(); }"),
    ("an ignored Result", STATUS,
     "kvcast::Result<int> Try(); void Run() { Try(); }",
     "kvcast::Result<int> Try(); bool Run() { return Try().ok(); }"),
    ("a copy of a lock", MUTEX,
     "kvcast::Mutex mutex; void Run() { kvcast::MutexLock a(mutex); kvcast::MutexLock b(a); }",
     "kvcast::Mutex mutex; void Run() { kvcast::MutexLock a(mutex); }"),
]
# Only for clang: g++ does not check the annotations.
CLANG_CASES = [
    ("a read of a guarded member without its lock", MUTEX,
     "struct Box { kvcast::Mutex mutex; int in KV_GUARDED_BY(mutex) = 0; int Get() { return in; } };",
     "struct Box { kvcast::Mutex mutex; int in KV_GUARDED_BY(mutex) = 0;"
     " int Get() { kvcast::MutexLock lock(mutex); return in; } };"),
    ("a wait without the lock", MUTEX,
     "kvcast::Mutex mutex; kvcast::CondVar wake; void Run() { wake.Wait(mutex); }",
     "kvcast::Mutex mutex; kvcast::CondVar wake;"
     " void Run() { kvcast::MutexLock lock(mutex); wake.Wait(mutex); }"),
]


def compiles(compiler, root, text):
    flags = ["-std=c++20", "-fsyntax-only", "-Werror=unused-result", f"-I{root}/include", f"-I{root}"]
    if "clang" in compiler:
        flags.append("-Werror=thread-safety")
    done = subprocess.run([compiler, *flags, "-x", "c++", "-"], input=text, capture_output=True, text=True)
    return done.returncode == 0, done.stderr


def main():
    compiler, root = sys.argv[1:]
    cases = CASES + (CLANG_CASES if "clang" in compiler else [])
    problems = 0
    for name, includes, mistake, corrected in cases:
        if compiles(compiler, root, includes + mistake)[0]:
            print(f"{name}: the mistake compiles")
            problems += 1
        ok, errors = compiles(compiler, root, includes + corrected)
        if not ok:
            print(f"{name}: the corrected form does not compile\n{errors}")
            problems += 1
    print(f"{len(cases)} mistakes, {problems} problems")
    return problems != 0


if __name__ == "__main__":
    sys.exit(main())
