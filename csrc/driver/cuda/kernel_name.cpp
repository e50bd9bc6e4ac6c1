#include "driver/cuda/kernel_name.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "base/error.h"

namespace fuser::driver {

using namespace fusion;
using namespace ir;

std::string op_of(const Tensor& t) {
  // Prefer the composite: the value may be another op, e.g. an fma or a short form.
  if (!t.composite.empty()) return t.composite;
  if (const auto* p = std::get_if<Pointwise>(&t.definition)) return row(p->op).name;
  if (const auto* r = std::get_if<Reduction>(&t.definition)) return row(r->op).name;
  return ir::name_of(t.definition);
}

namespace {

constexpr size_t most_words = 4, most_letters = 48;

struct Word {
  std::string text;
  int work = 0;  // issue slots; a reduction outweighs elementwise ops
};

int work_of(const Value& v) {
  constexpr int reduction = 1000;
  if (const auto* a = std::get_if<Apply>(&v.how)) return row(a->op).cost;
  if (std::holds_alternative<Reduced>(v.how)) return reduction;
  return std::holds_alternative<Select>(v.how) ? 1 : 0;
}

// Returns each op once, in order of first occurrence.
std::vector<Word> words_of(const Refined& refined) {
  std::vector<Word> words;
  for (const Value& v : refined.values) {
    const bool computed =
        !std::holds_alternative<Read>(v.how) && !std::holds_alternative<Project>(v.how);
    if (!v.tensor || !computed) continue;
    std::string name = op_of(*v.tensor);
    for (char& c : name)
      if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    const auto it =
        std::find_if(words.begin(), words.end(), [&](const Word& w) { return w.text == name; });
    if (it == words.end())
      words.push_back({std::move(name), work_of(v)});
    else
      it->work += work_of(v);
  }
  // Drop ops without cost, for instance casts, unless all ops are free.
  const auto is_free = [](const Word& w) { return w.work == 0; };
  if (!std::all_of(words.begin(), words.end(), is_free)) std::erase_if(words, is_free);
  return words;
}

std::string spelled(const std::vector<Word>& words, const std::string& moves) {
  std::vector<std::string> parts;
  if (!moves.empty()) parts.push_back(moves);
  for (const Word& w : words) parts.push_back(w.text);
  return joined(parts, "_");
}

}  // namespace

std::string kernel_name(const Refined& refined, const std::string& moves) {
  std::vector<Word> words = words_of(refined);
  while (words.size() > most_words ||
         (words.size() > 1 && spelled(words, moves).size() > most_letters))
    words.erase(std::min_element(words.begin(), words.end(),
                                 [](const Word& a, const Word& b) { return a.work < b.work; }));
  std::string name = spelled(words, moves);
  if (name.empty()) name = "copy";
  if (std::isdigit(static_cast<unsigned char>(name[0]))) name.insert(0, "_");
  return name.substr(0, most_letters);
}

}  // namespace fuser::driver
