#pragma once
// CPython's random.Random, as far as lm_eval draws few-shot examples with it.

#include <cstdint>
#include <vector>

namespace athanor::tasks {

/// Mersenne Twister MT19937 (Matsumoto and Nishimura 1998), seeded and used as CPython 3.11 does.
class PythonRandom {
 public:
  /// random.Random(seed) for an int that is not negative.
  explicit PythonRandom(uint64_t seed);

  /// Random.getrandbits(k), 1 ≤ k ≤ 32.
  uint32_t random_bits(int k);
  /// Random.randrange(n), 1 ≤ n < 2^32, by drawing bits until they are below n.
  uint64_t below(uint64_t n);
  /// The positions that Random.sample(population, k) takes from a population of n. k must not be larger than n.
  std::vector<uint64_t> sample(uint64_t n, uint64_t k);

 private:
  uint32_t next();

  uint32_t state_[624];
  int at_ = 624;
};

}  // namespace athanor::tasks
