// The unit of the budgets of tests: prints the processor seconds of a fixed amount of integer work, of reads all over
// 16 MiB, and of pages that the kernel gives and takes back, which is about a second on a core of 2023. The pages stand
// for the starts of processes, of which the tests have thousands. A machine that needs twice as long for it has twice
// as long for the tests.

#include <sys/mman.h>

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

// Touches the pages of 64 MiB, each of them new, `times` times.
bool touch_pages(int times) {
  constexpr size_t kBytes = size_t{64} << 20, kPage = 4096;
  for (int i = 0; i < times; ++i) {
    void* const pages = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return false;
    madvise(pages, kBytes, MADV_NOHUGEPAGE);
    for (size_t at = 0; at < kBytes; at += kPage) static_cast<volatile char*>(pages)[at] = 1;
    munmap(pages, kBytes);
  }
  return true;
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
  if (!touch_pages(10)) return 1;
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("%.3f\n", seconds);
  return sum == 0;  // so that the loops are not removed
}
