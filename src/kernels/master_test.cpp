#include "kernels/master.h"

#include <gtest/gtest.h>

#include <cmath>

namespace athanor::kernels::master_test {
namespace {

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

struct Split {
  Bf16 weight;
  uint16_t low;
};
Split split(float x) {
  Split s{};
  split_master(x, s.weight, s.low);
  return s;
}

// Calls f with every upper half, and every lower half near a value at which something changes.
template <class F>
void for_each_master(F f) {
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x1234u, 0x7FFFu, 0x8000u, 0x8001u, 0xABCDu, 0xFFFFu}) {
      const float x = from_bits(high << 16 | low);
      if (!std::isnan(x)) f(x);
    }
  }
}

TEST(Master, TheWeightIsTheMasterRoundedToNearestEven) {
  for_each_master([](float x) { ASSERT_EQ(split(x).weight.bits, bf16_from_float(x)) << std::hexfloat << x; });
}

TEST(Master, ComesBackAsItWasButForATieUnderAnOddHalfWhichMovesByOneUlp) {
  for_each_master([](float x) {
    const Split s = split(x);
    const uint32_t bits = bits_of(x);
    const bool moves = (bits & 0xFFFF) == 0x8000 && (bits >> 16) % 2 == 1;
    ASSERT_EQ(bits_of(join_master(s.weight, s.low)), bits + (moves ? 1 : 0)) << std::hexfloat << x;
  });
}

TEST(Master, WhatIsStoredIsStoredAgainUnchanged) {
  for_each_master([](float x) {
    const Split once = split(x), twice = split(join_master(once.weight, once.low));
    ASSERT_EQ(twice.weight.bits, once.weight.bits);
    ASSERT_EQ(twice.low, once.low);
    ASSERT_EQ(bits_of(storable_master(x)), bits_of(join_master(once.weight, once.low)));
  });
}

TEST(Master, ANotANumberStaysOne) {
  for (const uint32_t bits : {0x7F800001u, 0x7F808000u, 0x7F818000u, 0x7FC00000u, 0x7FFFFFFFu, 0xFFFF8000u}) {
    const Split s = split(from_bits(bits));
    EXPECT_TRUE(std::isnan(join_master(s.weight, s.low))) << std::hex << bits;
    EXPECT_TRUE(std::isnan(load(s.weight))) << std::hex << bits;
  }
}

TEST(Master, EveryLowerHalfOfOneNumberIsKept) {
  for (uint32_t low = 0; low < 0x10000; ++low) {
    const float x = from_bits(0x3F800000 | low);  // an even upper half: nothing moves
    const Split s = split(x);
    ASSERT_EQ(join_master(s.weight, s.low), x);
  }
}

}  // namespace
}  // namespace athanor::kernels::master_test
