// The unit of the budgets of tests: prints the processor seconds of a fixed amount of integer work and of reads all
// over 16 MiB, which is about a second on a core of 2023. A machine that needs twice as long for it has twice as long
// for the tests.

#include <cstdint>
#include <cstdio>
#include <ctime>
#include <vector>

namespace {

uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

int main() {
  constexpr uint64_t kMixes = 130'000'000, kReads = 5'000'000, kWords = uint64_t{2} << 20;
  std::vector<uint64_t> memory(kWords);
  const std::clock_t begin = std::clock();
  uint64_t sum = 1;
  for (uint64_t i = 0; i < kMixes; ++i) sum = mix(sum + i);
  for (uint64_t i = 0; i < kWords; ++i) memory[i] = mix(i);
  for (uint64_t i = 0; i < kReads; ++i) sum = memory[sum % kWords] + (sum >> 40);  // each read waits for the one before
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("%.3f\n", seconds);
  return sum == 0;  // so that the loops are not removed
}
