// Locks by key between the processes of one host, so that each kernel is compiled by one of them.
//
// A lock is one byte of a file in /tmp, at an offset made from the key. The system releases it when
// its process ends. The file is local, because locks do not work on every network file system: each
// host that shares a cache directory compiles for itself. If the file cannot be used, then every
// lock is granted: a kernel may be compiled twice, and no result changes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/sha256.h"

namespace fuser::driver {

// Locks of one caller. Callers of one process exclude each other too.
class HostLocks {
 public:
  // Opens the file. `directory` separates caches, so that only users of one cache wait.
  explicit HostLocks(std::string directory);
  HostLocks(const HostLocks&) = delete;
  ~HostLocks();

  // Takes the lock of a key unless another caller has it. Returns whether this caller has it now.
  bool take(const Digest& key);
  // Releases all locks.
  void release();

 private:
  const std::string directory_;
  int file_ = -1;
  std::vector<int64_t> taken_;  // offsets
};

}  // namespace fuser::driver
