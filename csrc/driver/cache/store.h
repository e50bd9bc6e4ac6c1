// The disk cache of compiled kernels: one file per key in one private directory.
//
// A wrong byte in an entry would become machine code. So the directory and each entry must belong
// to this user alone, and each entry carries the digest of its bytes. No failure is an error: an
// unusable cache means misses and one log line per process, even with several objects for one
// directory. Any number of threads and processes may share a directory. There are no locks in
// it, which do not work on every network file system: complete files appear by rename.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "driver/cuda/binary.h"

namespace fuser::driver {

// Returns the directory of the cache: the option's value, else $XDG_CACHE_HOME/fuser, else
// ~/.cache/fuser.
std::string store_directory(const std::string& option);

struct StoreCounters {
  int64_t hits = 0;
  int64_t misses = 0;   // includes bad entries
  int64_t puts = 0;     // entries written
  int64_t evicted = 0;  // entries removed to stay within the capacity
  int64_t bad = 0;      // entries that were truncated or altered
};

class DiskStore {
 public:
  static constexpr int64_t kDefaultCapacity = int64_t{1} << 30;

  // Does not access the disk yet. The first put() creates the directory (0700). It is used only
  // while it belongs to this user and no other user may write to it. A capacity of 0 disables the
  // store.
  explicit DiskStore(std::string directory, int64_t capacity_bytes = kDefaultCapacity);

  std::optional<Binary> get(const Digest& key);
  void put(const Digest& key, const Binary& binary);
  // Removes every entry.
  void clear();

  const std::string& directory() const { return directory_; }
  StoreCounters counters() const;

 private:
  int open_directory(bool create);
  bool write_entry(int directory, const std::string& name, const std::string& bytes);
  void account(int directory, int64_t written);
  enum class Warning : uint8_t { Directory, Write, Size };
  void warn_once(Warning about, const std::string& message);

  const std::string directory_;
  const int64_t capacity_;
  std::atomic<int64_t> hits_ = 0, misses_ = 0, puts_ = 0, evicted_ = 0, bad_ = 0;
  // Bytes that may be written before the directory is measured again.
  std::atomic<int64_t> room_ = 0;
};

}  // namespace fuser::driver
