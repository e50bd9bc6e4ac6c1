#include "base/log.h"

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace fuser {
namespace {

void write_stderr(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stderr); }

// Returns a kernel's name as a part of a file name.
std::string file_part(std::string_view name) {
  std::string result(name);
  for (char& c : result)
    if (c == '/' || c == '\0') c = '_';
  return result;
}

std::filesystem::path next_file(std::string_view stage, std::string_view kernel) {
  static std::atomic<int> count{0};
  char number[16];
  std::snprintf(number, sizeof number, "%05d", count++);
  const std::string extension = stage == "cuda" ? ".cu" : ".txt";
  return std::filesystem::path(options().dump_dir) /
         (number + ("." + file_part(kernel)) + "." + file_part(stage) + extension);
}

bool write_file(const std::filesystem::path& path, std::string_view text) {
  std::error_code ignored;  // an existing folder is no error, and a missing one fails at the open
  std::filesystem::create_directories(path.parent_path(), ignored);
  std::ofstream file(path, std::ios::binary);
  file << text;
  return static_cast<bool>(file.flush());
}

}  // namespace

void log_line(std::string_view text) { write_stderr("fuser: " + std::string(text) + "\n"); }

void log(std::string_view text) {
  if (log_enabled()) log_line(text);
}

bool dump_enabled(std::string_view stage, std::string_view kernel) {
  for (const std::string& entry : options().dump) {
    const std::string_view selected = entry;
    const size_t at = selected.find('@');
    const std::string_view wanted = selected.substr(0, at);
    if (wanted != stage && wanted != "all") continue;
    if (at == selected.npos || kernel.find(selected.substr(at + 1)) != kernel.npos) return true;
  }
  return false;
}

void dump(std::string_view stage, std::string_view kernel, std::string_view text) {
  const std::string body = std::string(text) + (text.ends_with('\n') ? "" : "\n");
  if (options().dump_dir.empty()) {
    write_stderr("==== " + std::string(stage) + " of " + std::string(kernel) + " ====\n" + body);
    return;
  }
  const std::filesystem::path path = next_file(stage, kernel);
  if (!write_file(path, body))
    log_line("cannot write " + path.string() + "; let FUSER_DUMP_DIR name a writable folder");
}

}  // namespace fuser
