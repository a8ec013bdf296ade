#include "base/random.h"

#include <bit>
#include <cmath>

#include "base/error.h"
#include "base/hash.h"

namespace athanor {
namespace {

constexpr int kFeistelRounds = 8;  // four already look random; eight leave no visible trace at small sizes

// Returns standard normal numbers 2 · pair and 2 · pair + 1.
std::array<double, 2> normals(const CounterKey& key, uint64_t pair) {
  const NormalPair of = normal_pair(counter_bits(key, pair));
  const double radius = std::sqrt(of.squared_radius);
  return {radius * of.cosine, radius * of.sine};
}

}  // namespace

CounterRandom::CounterRandom(uint64_t seed, std::string_view name)
    : key_{.key = hash_u64(name, seed), .stream = hash_u64(name, ~seed)} {}

std::array<uint32_t, 4> CounterRandom::bits(uint64_t index) const {
  const CounterBits b = counter_bits(key_, index);
  return {b.at[0], b.at[1], b.at[2], b.at[3]};
}

uint64_t CounterRandom::u64(uint64_t index) const {
  const auto b = bits(index);
  return (uint64_t{b[1]} << 32) | b[0];
}

double CounterRandom::uniform(uint64_t index) const { return static_cast<double>(u64(index) >> 11) * 0x1.0p-53; }

double CounterRandom::normal(uint64_t index) const { return normals(key_, index / 2)[index % 2]; }

void CounterRandom::fill_normal(float* out, uint64_t begin, uint64_t end, double scale) const {
  const auto put = [&](uint64_t index, double value) { out[index - begin] = static_cast<float>(value * scale); };
  if (begin % 2 == 1 && begin < end) put(begin, normal(begin));
  uint64_t index = begin + begin % 2;
  for (; index + 1 < end; index += 2) {
    const auto pair = normals(key_, index / 2);
    put(index, pair[0]);
    put(index + 1, pair[1]);
  }
  if (index < end) put(index, normal(index));
}

uint64_t CounterRandom::below(uint64_t index, uint64_t bound) const {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(u64(index)) * bound) >> 64);
}

Permutation::Permutation(uint64_t size, uint64_t seed, std::string_view name) : size_(size), random_(seed, name) {
  const int bits = size <= 1 ? 0 : std::bit_width(size - 1);
  half_bits_ = (bits + 1) / 2 > 0 ? (bits + 1) / 2 : 1;
  half_mask_ = (uint64_t{1} << half_bits_) - 1;
}

uint64_t Permutation::round(uint64_t half, int round) const {
  return random_.u64((static_cast<uint64_t>(round) << 56) | half) & half_mask_;
}

uint64_t Permutation::forward_once(uint64_t value) const {
  uint64_t left = value >> half_bits_, right = value & half_mask_;
  for (int r = 0; r < kFeistelRounds; ++r) {
    const uint64_t next = left ^ round(right, r);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

uint64_t Permutation::backward_once(uint64_t value) const {
  uint64_t left = value >> half_bits_, right = value & half_mask_;
  for (int r = kFeistelRounds; r-- > 0;) {
    const uint64_t previous = right ^ round(left, r);
    right = left;
    left = previous;
  }
  return (left << half_bits_) | right;
}

uint64_t Permutation::operator()(uint64_t index) const {
  ATHANOR_ASSERT(index < size_);
  do index = forward_once(index);
  while (index >= size_);
  return index;
}

uint64_t Permutation::inverse(uint64_t value) const {
  ATHANOR_ASSERT(value < size_);
  do value = backward_once(value);
  while (value >= size_);
  return value;
}

}  // namespace athanor
