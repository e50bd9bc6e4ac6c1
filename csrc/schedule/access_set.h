// AccessSet: a set of memory accesses of a kernel, by index into Problem::accesses.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fuser::schedule {

// A bit set of unlimited size. A plan holds it as the integer whose bit i is set if access i is in
// the set.
class AccessSet {
 public:
  AccessSet() = default;
  // Takes the words of the integer, lowest first.
  explicit AccessSet(std::vector<uint64_t> words) : words_(std::move(words)) { shorten(); }

  bool contains(size_t access) const {
    return access / bits < words_.size() && (words_[access / bits] >> access % bits & 1) != 0;
  }
  void insert(size_t access) {
    if (access / bits >= words_.size()) words_.resize(access / bits + 1);
    words_[access / bits] |= uint64_t{1} << access % bits;
  }
  bool empty() const { return words_.empty(); }
  int count() const {
    int n = 0;
    for (uint64_t word : words_) n += std::popcount(word);
    return n;
  }
  bool is_subset_of(const AccessSet& of) const {
    for (size_t i = 0; i < words_.size(); ++i)
      if (words_[i] & ~(i < of.words_.size() ? of.words_[i] : 0)) return false;
    return true;
  }
  AccessSet& operator|=(const AccessSet& other) {
    if (words_.size() < other.words_.size()) words_.resize(other.words_.size());
    for (size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }
  AccessSet without(const AccessSet& other) const {
    AccessSet out = *this;
    for (size_t i = 0; i < words_.size() && i < other.words_.size(); ++i)
      out.words_[i] &= ~other.words_[i];
    out.shorten();
    return out;
  }

  // The words of the integer, lowest first. The last word is not 0, so equal sets have equal words.
  const std::vector<uint64_t>& words() const { return words_; }
  bool operator==(const AccessSet&) const = default;

 private:
  static constexpr size_t bits = 64;
  void shorten() {
    while (!words_.empty() && !words_.back()) words_.pop_back();
  }
  std::vector<uint64_t> words_;
};

}  // namespace fuser::schedule
