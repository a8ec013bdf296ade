#include "eval/generation_work.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace athanor::inline eval {
namespace {

using Numbers = std::vector<int64_t>;

void put(Numbers& out, const Numbers& list) {
  out.push_back(std::ssize(list));
  out.insert(out.end(), list.begin(), list.end());
}

class Reader {
 public:
  explicit Reader(const Numbers& numbers) : numbers_(numbers) {}
  int64_t next() {
    ATHANOR_ASSERT(at_ < numbers_.size());
    return numbers_[at_++];
  }
  Numbers list() {
    Numbers result(static_cast<size_t>(next()));
    for (int64_t& each : result) each = next();
    return result;
  }

 private:
  const Numbers& numbers_;
  size_t at_ = 0;
};

}  // namespace

bool GenerationWork::begins() const {
  return std::ranges::any_of(parts, [](const Part& part) { return !part.begun.empty(); });
}

std::string GenerationWork::bytes() const {
  Numbers out = {slots, capacity, std::ssize(parts)};
  for (const Part& part : parts) {
    put(out, part.left);
    put(out, part.next);
    out.push_back(std::ssize(part.begun));
    for (const NewText& text : part.begun) {
      out.push_back(text.index);
      put(out, text.ids);
    }
  }
  return {reinterpret_cast<const char*>(out.data()), out.size() * sizeof(int64_t)};
}

GenerationWork GenerationWork::from_bytes(const std::string& bytes) {
  Numbers numbers(bytes.size() / sizeof(int64_t));
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * sizeof(int64_t));
  Reader in(numbers);
  GenerationWork work;
  work.slots = in.next();
  work.capacity = in.next();
  work.parts.resize(static_cast<size_t>(in.next()));
  for (Part& part : work.parts) {
    part.left = in.list();
    part.next = in.list();
    part.begun.resize(static_cast<size_t>(in.next()));
    for (NewText& text : part.begun) {
      text.index = in.next();
      text.ids = in.list();
    }
  }
  return work;
}

}  // namespace athanor::inline eval
