#include "base/random.h"

#include <bit>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/hash.h"

namespace athanor {
namespace {

constexpr int kFeistelRounds = 8;  // four already look random; eight leave no visible trace at small sizes

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint32_t kMul0 = 0xD2511F53, kMul1 = 0xCD9E8D57, kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kMul0} * counter[0];
    const uint64_t p1 = uint64_t{kMul1} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

}  // namespace

CounterRandom::CounterRandom(uint64_t seed, std::string_view name)
    : key_(hash_u64(name, seed)), stream_(hash_u64(name, ~seed)) {}

std::array<uint32_t, 4> CounterRandom::bits(uint64_t index) const {
  return philox4x32({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream_),
                     static_cast<uint32_t>(stream_ >> 32)},
                    {static_cast<uint32_t>(key_), static_cast<uint32_t>(key_ >> 32)});
}

uint64_t CounterRandom::u64(uint64_t index) const {
  const auto b = bits(index);
  return (uint64_t{b[1]} << 32) | b[0];
}

double CounterRandom::uniform(uint64_t index) const { return static_cast<double>(u64(index) >> 11) * 0x1.0p-53; }

std::array<double, 2> CounterRandom::normal_pair(uint64_t pair) const {
  const auto b = bits(pair);
  // The radius must not be log(0): (x + 1) / 2^32 is above 0.
  const double u = (static_cast<double>(b[0]) + 1.0 + static_cast<double>(b[2] >> 12) * 0x1.0p-20) * 0x1.0p-32;
  const double turn = (static_cast<double>(b[1]) + static_cast<double>(b[3]) * 0x1.0p-32) * 0x1.0p-32;
  const double angle = 2.0 * std::numbers::pi * turn;
  const double radius = std::sqrt(-2.0 * std::log(u < 1.0 ? u : 1.0));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

double CounterRandom::normal(uint64_t index) const { return normal_pair(index / 2)[index % 2]; }

void CounterRandom::fill_normal(float* out, uint64_t begin, uint64_t end, double scale) const {
  const auto put = [&](uint64_t index, double value) { out[index - begin] = static_cast<float>(value * scale); };
  if (begin % 2 == 1 && begin < end) put(begin, normal(begin));
  uint64_t index = begin + begin % 2;
  for (; index + 1 < end; index += 2) {
    const auto pair = normal_pair(index / 2);
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
