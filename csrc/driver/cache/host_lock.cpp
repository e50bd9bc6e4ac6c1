#include "driver/cache/host_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace fuser::driver {
namespace {

// Locks of an open file instead of a process: threads exclude each other, and closing another
// descriptor of the file releases nothing.
bool lock_byte(int file, int64_t offset, int16_t type) {
  struct flock request = {};
  request.l_type = type;
  request.l_whence = SEEK_SET;
  request.l_start = offset;
  request.l_len = 1;
  return ::fcntl(file, F_OFD_SETLK, &request) == 0;
}

}  // namespace

HostLocks::HostLocks(std::string directory) : directory_(std::move(directory)) {
  const std::string path = text("/tmp/fuser-", ::geteuid(), ".locks");
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
  struct stat status;
  // Another user's file could be locked by that user for ever.
  if (file_ >= 0 && (::fstat(file_, &status) != 0 || status.st_uid != ::geteuid() ||
                     !S_ISREG(status.st_mode) || (status.st_mode & 077) != 0)) {
    ::close(file_);
    file_ = -1;
  }
}

HostLocks::~HostLocks() {
  release();
  if (file_ >= 0) ::close(file_);
}

bool HostLocks::take(const Digest& key) {
  if (file_ < 0) return true;
  const Digest mixed = sha256_of_parts({directory_, hex(key)});
  int64_t offset = 0;
  for (size_t i = 0; i < 7; ++i) offset = offset << 8 | mixed[i];  // 56 bits, never negative
  if (!lock_byte(file_, offset, F_WRLCK)) return errno != EAGAIN && errno != EACCES;
  taken_.push_back(offset);
  return true;
}

// Unlocks each byte: a forked child may hold a copy of the descriptor.
void HostLocks::release() {
  for (const int64_t offset : taken_) lock_byte(file_, offset, F_UNLCK);
  taken_.clear();
}

}  // namespace fuser::driver
