#include "codegen/device_text.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace fuser::codegen {
namespace {

bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Calls `use` with each identifier of `text`. Numbers count as identifiers, which is harmless;
// words in comments do not count.
template <class Use>
void for_each_identifier(std::string_view text, Use use) {
  size_t i = 0;
  while (i < text.size()) {
    if (text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size());
    } else if (is_name_char(text[i])) {
      const size_t begin = i;
      while (i < text.size() && is_name_char(text[i])) ++i;
      use(text.substr(begin, i - begin));
    } else {
      ++i;
    }
  }
}

struct Block {
  std::vector<std::string_view> names, types, uses;
  std::string_view text;
};

struct Library {
  std::vector<Block> blocks;
  // name or type -> the blocks whose marker contains it
  std::unordered_map<std::string_view, std::vector<int>> by_word;
};

// Returns the library of one machine's kernels.
template <DeviceBlock::Machines MACHINE>
const Library& library() {
  static const Library* built = [] {
    auto* lib = new Library;
    for (const DeviceBlock& source : device_blocks()) {
      if (source.machines != MACHINE && source.machines != DeviceBlock::Both) continue;
      const int index = static_cast<int>(lib->blocks.size());
      Block block;
      block.text = source.text;
      for_each_identifier(source.names, [&](std::string_view w) { block.names.push_back(w); });
      for_each_identifier(source.types, [&](std::string_view w) { block.types.push_back(w); });
      std::unordered_set<std::string_view> seen;
      for_each_identifier(source.text, [&](std::string_view w) {
        if (seen.insert(w).second) block.uses.push_back(w);
      });
      for (std::string_view w : block.names) lib->by_word[w].push_back(index);
      for (std::string_view w : block.types) lib->by_word[w].push_back(index);
      lib->blocks.push_back(std::move(block));
    }
    return lib;
  }();
  return *built;
}

std::string blocks_for(const Library& lib, std::string_view kernel_body) {
  std::unordered_set<std::string_view> occurring;
  std::vector<std::string_view> pending;
  const auto occur = [&](std::string_view word) {
    if (lib.by_word.contains(word) && occurring.insert(word).second) pending.push_back(word);
  };
  const auto any_occurs = [&](const std::vector<std::string_view>& words) {
    for (std::string_view w : words) {
      if (occurring.contains(w)) return true;
    }
    return false;
  };

  std::vector<bool> pasted(lib.blocks.size());
  for_each_identifier(kernel_body, occur);
  while (!pending.empty()) {
    const std::string_view word = pending.back();
    pending.pop_back();
    for (const int index : lib.by_word.at(word)) {
      const Block& block = lib.blocks[index];
      if (pasted[index] || !any_occurs(block.names)) continue;
      if (!block.types.empty() && !any_occurs(block.types)) continue;
      pasted[index] = true;
      for (std::string_view use : block.uses) occur(use);
    }
  }

  std::string text;
  for (size_t i = 0; i < lib.blocks.size(); ++i) {
    if (pasted[i]) text.append(lib.blocks[i].text).append("\n");
  }
  return text;
}

}  // namespace

std::string device_text(std::string_view kernel_body) {
  return blocks_for(library<DeviceBlock::Gpu>(), kernel_body);
}

std::string cpu_text(std::string_view functions) {
  return blocks_for(library<DeviceBlock::Cpu>(), functions);
}

}  // namespace fuser::codegen
