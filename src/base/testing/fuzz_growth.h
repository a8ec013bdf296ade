#pragma once
// What all fuzzers draw in addition to small changes: depth and repetition. The build includes it into each fuzzer.
//
// A parser that recurses for each bracket, or that searches all it has read at each new item, shows it at a hundred
// thousand of them, which changes of single bytes never make.

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace athanor::fuzz_growth {

struct Part {
  size_t begin, size;
};

/// Draws a part of `size` bytes from `from` on, of at most 16.
inline Part draw_part(std::minstd_rand& random, size_t from, size_t size) {
  const size_t begin = from + random() % (size - from);
  return {begin, 1 + random() % std::min<size_t>(16, size - begin)};
}

/// Returns the input with a part of it repeated; every other time a part behind it as often, as brackets need it.
inline std::string repeat_parts(const std::string& input, std::minstd_rand& random, size_t max_size) {
  const Part first = draw_part(random, 0, input.size());
  const size_t behind = first.begin + first.size;
  const bool has_second = random() % 2 == 0 && behind < input.size();
  const Part second = has_second ? draw_part(random, behind, input.size()) : Part{input.size(), 0};
  const size_t most = (max_size - input.size()) / (first.size + second.size);
  const size_t times = std::min<size_t>(most, size_t{2} << random() % 17);
  const auto repeated = [&](const Part& part) {
    std::string all;
    for (size_t i = 0; i < times; ++i) all += input.substr(part.begin, part.size);
    return all;
  };
  return input.substr(0, behind) + repeated(first) + input.substr(behind, second.begin + second.size - behind) +
         repeated(second) + input.substr(second.begin + second.size);
}

}  // namespace athanor::fuzz_growth

// libFuzzer calls it in place of its own mutation.
extern "C" __attribute__((used)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                                                unsigned seed) {
  std::minstd_rand random(seed);
  if (size == 0 || size >= max_size || random() % 16 != 0) return LLVMFuzzerMutate(data, size, max_size);
  const std::string grown =
      athanor::fuzz_growth::repeat_parts(std::string(reinterpret_cast<const char*>(data), size), random, max_size);
  std::copy(grown.begin(), grown.end(), data);
  return grown.size();
}
