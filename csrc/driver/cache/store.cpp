#include "driver/cache/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace fuser::driver {
namespace {

constexpr std::string_view kEntrySuffix = ".bin";
constexpr std::string_view kTemporarySuffix = ".tmp";
constexpr int kSecondsPerHour = 3600;
// Minimum age at which a hit renews the time of last use, so that most reads do not write.
constexpr int kRenewSeconds = 24 * kSecondsPerHour;
// A temporary file of this age belongs to a process that died while writing.
constexpr int kAbandonedSeconds = kSecondsPerHour;

// Owner of a file descriptor.
struct File {
  explicit File(int descriptor) : descriptor(descriptor) {}
  File(const File&) = delete;
  ~File() {
    if (descriptor >= 0) ::close(descriptor);
  }
  explicit operator bool() const { return descriptor >= 0; }
  const int descriptor;
};

// Returns why another user may have changed a directory or file; empty if it belongs to this user
// alone.
std::string trust_fault(const struct stat& status) {
  if (status.st_uid != ::geteuid())
    return text("it belongs to user ", status.st_uid, ", not to user ", ::geteuid());
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "other users can write to it";
  return "";
}

std::string entry_name(const Digest& key) { return hex(key) + std::string(kEntrySuffix); }

// Returns whether the name is one of this cache: 64 digits, then the entry suffix or a temporary
// one. Files with other names are never removed.
bool is_ours(std::string_view name, std::string_view suffix) {
  return name.size() > 64 && name.ends_with(suffix) &&
         name.substr(0, 64).find_first_not_of("0123456789abcdef") == name.npos;
}

bool read_all(int descriptor, std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::read(descriptor, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    if (count == 0) break;
    done += size_t(count);
  }
  bytes.resize(done);
  return true;
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(size_t(count));
  }
  return true;
}

// Creates the path like mkdir -p, with mode 0700 for each new level. Returns errno of the first
// failure, else 0.
int make_directories(const std::string& path) {
  int fault = 0;
  const auto make = [&](const std::string& level) {
    if (::mkdir(level.c_str(), 0700) != 0 && errno != EEXIST && fault == 0) fault = errno;
  };
  for (size_t slash = path.find('/', 1); slash != path.npos; slash = path.find('/', slash + 1))
    make(path.substr(0, slash));
  make(path);
  return fault;
}

struct Entry {
  std::string name;
  int64_t bytes;
  int64_t used;  // time of last use, in nanoseconds
};

// Returns every entry, and removes abandoned temporary files.
std::vector<Entry> list_entries(int directory) {
  std::vector<Entry> entries;
  const int own = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const stream = own < 0 ? nullptr : ::fdopendir(own);
  if (stream == nullptr) {
    if (own >= 0) ::close(own);
    return entries;
  }
  const time_t now = std::time(nullptr);
  while (const dirent* item = ::readdir(stream)) {
    const std::string_view name = item->d_name;
    const bool temporary = is_ours(name, kTemporarySuffix);
    struct stat status;
    if (!temporary && !is_ours(name, kEntrySuffix)) continue;
    if (::fstatat(directory, item->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (temporary) {
      if (now - status.st_mtime > kAbandonedSeconds) ::unlinkat(directory, item->d_name, 0);
    } else {
      const timespec& used = status.st_mtim;
      entries.push_back({std::string(name), int64_t(status.st_size),
                         int64_t(used.tv_sec) * 1'000'000'000 + used.tv_nsec});
    }
  }
  ::closedir(stream);
  return entries;
}

// Returns an empty string for a user without a home directory.
std::string home_directory() {
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') return home;
  std::vector<char> space(16384);
  passwd record, *found = nullptr;
  if (::getpwuid_r(::geteuid(), &record, space.data(), space.size(), &found) == 0 &&
      found != nullptr)
    return record.pw_dir;
  return "";
}

std::string without_trailing_slash(std::string path) {
  // "dir/" would make O_NOFOLLOW follow a link.
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

std::string store_directory(const std::string& option) {
  if (!option.empty()) return option;
  // The XDG specification says that a relative path is invalid and ignored.
  if (const char* base = std::getenv("XDG_CACHE_HOME"); base != nullptr && *base == '/')
    return text(base, "/fuser");
  if (const std::string home = home_directory(); !home.empty()) return home + "/.cache/fuser";
  // Do not use a subdirectory: if another user made its parent under /tmp, that user could replace
  // it.
  return text("/tmp/fuser-", ::geteuid());
}

DiskStore::DiskStore(std::string directory, int64_t capacity_bytes)
    : directory_(without_trailing_slash(std::move(directory))), capacity_(capacity_bytes) {}

// Logs a message once per directory and kind. Kernels, compilers and tuned plans each have an
// object for one directory.
void DiskStore::warn_once(Warning about, const std::string& message) {
  static std::mutex mutex;
  static auto& said = *new std::set<std::pair<std::string, Warning>>;  // outlives every thread
  const std::lock_guard lock(mutex);
  if (said.emplace(directory_, about).second) log_line(message);
}

// Opens the directory anew for each use: it may be removed, replaced or made writable at any time.
int DiskStore::open_directory(bool create) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  int descriptor = ::open(directory_.c_str(), kFlags), unmade = 0;
  if (descriptor < 0 && errno == ENOENT) {
    if (!create) return -1;
    unmade = make_directories(directory_);
    descriptor = ::open(directory_.c_str(), kFlags);
  }
  std::string fault;
  struct stat status;
  if (descriptor < 0 && unmade != 0) {
    fault = text("it cannot be created: ", std::strerror(unmade));
  } else if (descriptor < 0) {
    // open() with O_NOFOLLOW and O_DIRECTORY reports a link as "not a directory".
    fault = errno == ELOOP || errno == ENOTDIR ? "it is a symbolic link or not a directory"
                                               : std::strerror(errno);
  } else if (::fstat(descriptor, &status) != 0) {
    fault = std::strerror(errno);
  } else {
    fault = trust_fault(status);
    if (!fault.empty() && status.st_uid == ::geteuid()) fault += " (chmod 700 makes it usable)";
  }
  if (fault.empty()) return descriptor;
  if (descriptor >= 0) ::close(descriptor);
  warn_once(Warning::Directory, text("cache directory ", directory_, " is not used: ", fault));
  return -1;
}

std::optional<Binary> DiskStore::get(const Digest& key) {
  if (capacity_ <= 0) return std::nullopt;
  const auto miss = [this] {
    misses_.fetch_add(1, std::memory_order_relaxed);
    return std::nullopt;
  };
  const File directory(open_directory(false));
  if (!directory) return miss();
  const std::string name = entry_name(key);
  // O_NONBLOCK: a pipe of that name must not block.
  const File file(
      ::openat(directory.descriptor, name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!file && errno != ELOOP) return miss();

  std::string reason;
  std::optional<Binary> binary;
  struct stat status;
  if (!file) {
    reason = "it is a symbolic link";
  } else if (::fstat(file.descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    reason = "it is not a regular file";
  } else if (const std::string fault = trust_fault(status); !fault.empty()) {
    // The file may have been planted while the directory was writable by others: the digest is no
    // secret.
    reason = fault;
  } else if (status.st_size > capacity_) {
    reason = text("it has ", status.st_size, " bytes, more than the whole cache may have");
  } else {
    std::string bytes(size_t(status.st_size), '\0');
    if (!read_all(file.descriptor, bytes)) return miss();
    binary = unseal(key, bytes, reason);
  }
  if (!binary) {
    bad_.fetch_add(1, std::memory_order_relaxed);
    ::unlinkat(directory.descriptor, name.c_str(), 0);
    log_line(text("cache entry ", directory_, "/", name, " was removed and is rebuilt: ", reason));
    return miss();
  }
  if (std::time(nullptr) - status.st_mtime > kRenewSeconds) ::futimens(file.descriptor, nullptr);
  hits_.fetch_add(1, std::memory_order_relaxed);
  return binary;
}

void DiskStore::put(const Digest& key, const Binary& binary) {
  if (capacity_ <= 0) return;
  const std::string bytes = seal(key, binary);
  if (int64_t(bytes.size()) > capacity_) {
    warn_once(Warning::Size,
              text("a kernel of ", bytes.size(), " bytes is not stored on disk: the cache in ",
                   directory_, " is limited to ", capacity_, " bytes"));
    return;
  }
  const File directory(open_directory(true));
  if (!directory) return;
  if (!write_entry(directory.descriptor, hex(key), bytes)) {
    warn_once(Warning::Write,
              text("the cache in ", directory_, " cannot be written: ", std::strerror(errno),
                   "; kernels are compiled again in the next process"));
    return;
  }
  puts_.fetch_add(1, std::memory_order_relaxed);
  account(directory.descriptor, int64_t(bytes.size()));
}

// Writes a file that appears under its final name completely or not at all. Returns false and sets
// errno on failure.
bool DiskStore::write_entry(int directory, const std::string& name, const std::string& bytes) {
  static std::atomic<int64_t> count = 0;
  // The clock distinguishes processes of two machines or containers that share a directory and a
  // process id.
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  const std::string temporary =
      text(name, ".", ::getpid(), ".", count.fetch_add(1), ".", now.tv_nsec, kTemporarySuffix);
  int fault = 0;
  {
    const File file(::openat(directory, temporary.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) return false;
    if (!write_all(file.descriptor, bytes) || ::fsync(file.descriptor) != 0) fault = errno;
  }
  const std::string final_name = name + std::string(kEntrySuffix);
  if (fault == 0 && ::renameat(directory, temporary.c_str(), directory, final_name.c_str()) != 0)
    fault = errno;
  if (fault == 0) return true;
  ::unlinkat(directory, temporary.c_str(), 0);
  errno = fault;
  return false;
}

// Counts `written` bytes, and measures the directory if they may have filled it: at the first put()
// of a process, and each time a sixteenth of the capacity was written, because other processes
// write too. Beyond the capacity, removes least recently used entries until an eighth is free.
void DiskStore::account(int directory, int64_t written) {
  if (room_.fetch_sub(written) - written > 0) return;
  std::vector<Entry> entries = list_entries(directory);
  int64_t total = 0;
  for (const Entry& entry : entries) total += entry.bytes;
  if (total > capacity_) {
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
      return std::tie(a.used, a.name) < std::tie(b.used, b.name);
    });
    for (const Entry& entry : entries) {
      if (total <= capacity_ - capacity_ / 8) break;
      // If another process removed the entry first, count it as removed.
      if (::unlinkat(directory, entry.name.c_str(), 0) == 0)
        evicted_.fetch_add(1, std::memory_order_relaxed);
      else if (errno != ENOENT)
        continue;
      total -= entry.bytes;
    }
  }
  room_.store(std::clamp<int64_t>(capacity_ - total, 0, capacity_ / 16));
}

void DiskStore::clear() {
  const File directory(open_directory(false));
  if (!directory) return;
  for (const Entry& entry : list_entries(directory.descriptor))
    ::unlinkat(directory.descriptor, entry.name.c_str(), 0);
}

StoreCounters DiskStore::counters() const {
  return {hits_.load(), misses_.load(), puts_.load(), evicted_.load(), bad_.load()};
}

}  // namespace fuser::driver
