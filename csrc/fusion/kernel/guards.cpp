#include "fusion/kernel/guards.h"

#include <algorithm>
#include <bit>

namespace fuser::fusion {

using namespace ir;

int64_t bucket_limit(int bucket) { return (int64_t{4 + bucket % 4} << (bucket / 4)) >> 2; }

int bucket_of(int64_t value) {
  if (value <= 1) return 0;
  int bucket = 4 * (std::bit_width(static_cast<uint64_t>(value)) - 1);
  while (bucket_limit(bucket) < value) ++bucket;
  return bucket;
}

int answer(const Guard& guard, const CallSizes& sizes) {
  switch (guard.kind) {
    case Guard::Kind::Divides:
      return sizes.values[guard.subject] % guard.divisor == 0;
    case Guard::Kind::Bucket:
      return bucket_of(sizes.values[guard.subject]);
    case Guard::Kind::Aligned:
      return sizes.aligned[guard.subject];
    case Guard::Kind::OneWave:
      return sizes.one_wave;
  }
  return 0;
}

std::string to_string(const Answer& a) {
  const char* const truth = a.value ? "yes" : "no";
  switch (a.guard.kind) {
    case Guard::Kind::Divides:
      return text(a.guard.divisor, " divides ", ir::to_string(a.guard.size), ": ", truth);
    case Guard::Kind::Bucket:
      return text(ir::to_string(a.guard.size), " is at most ", bucket_limit(a.value));
    case Guard::Kind::Aligned:
      return text("buffer ", a.guard.subject, " is aligned: ", truth);
    case Guard::Kind::OneWave:
      return text("one wave: ", truth);
  }
  return "";
}

SizeHints::SizeHints(const Problem& problem, Fission fission, GuardSizes& guards, CallSizes& sizes,
                     IntProgram::Leaf leaf)
    : problem_(problem),
      fission_(fission),
      guards_(guards),
      sizes_(sizes),
      leaf_(std::move(leaf)),
      asked_aligned_(problem.buffers.size(), false) {}

int SizeHints::record(const Guard& guard) {
  answers_.push_back({guard, answer(guard, sizes_)});
  return answers_.back().value;
}

int SizeHints::ask_size(Guard::Kind kind, Expr size, int64_t divisor) {
  const int slot = guards_.program.add(size);
  const Guard guard{.kind = kind, .subject = slot, .divisor = divisor, .size = size};
  for (size_t i : of_sizes_)
    if (answers_[i].guard == guard) return answers_[i].value;
  guards_.program.resume(leaf_, sizes_.values);
  of_sizes_.push_back(answers_.size());
  return record(guard);
}

bool SizeHints::divides(Expr value, int64_t divisor) {
  if (divisor == 1) return true;
  if (value->is_constant()) return value->value.integer % divisor == 0;
  return ask_size(Guard::Kind::Divides, value, divisor) != 0;
}

int64_t SizeHints::at_most(Expr extent) {
  if (extent->is_constant()) return bucket_limit(bucket_of(extent->value.integer));
  return bucket_limit(ask_size(Guard::Kind::Bucket, extent, 1));
}

bool SizeHints::aligned(int buffer) {
  // Allocators align the memory of outputs.
  if (problem_.buffers[buffer].input < 0) return true;
  if (!asked_aligned_[buffer]) {
    asked_aligned_[buffer] = true;
    record({.kind = Guard::Kind::Aligned, .subject = buffer});
  }
  return sizes_.aligned[buffer];
}

bool SizeHints::one_wave() {
  if (!asked_one_wave_) {
    asked_one_wave_ = true;
    record({.kind = Guard::Kind::OneWave});
  }
  return sizes_.one_wave;
}

}  // namespace fuser::fusion
