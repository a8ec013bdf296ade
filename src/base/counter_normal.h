#pragma once
// The arithmetic of CounterRandom: random bits of a counter, and the normal numbers that they make. It is in a header,
// and of constexpr functions, so that kernels of a device run it too (kernels/cuda/noise.h).
//
// Only additions, multiplications, divisions and square roots are used, which IEEE 754 defines to the last bit. The
// libm's of hosts and devices differ in the last bits of logarithms and sines, so none is called.
//
// Philox4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

#include <bit>
#include <cstdint>

namespace athanor {

/// The identity of a stream of random numbers.
struct CounterKey {
  uint64_t key = 0, stream = 0;
};

struct CounterBits {
  uint32_t at[4];
};

/// Returns 128 random bits for `index`.
constexpr CounterBits counter_bits(const CounterKey& of, uint64_t index) {
  constexpr uint32_t kMul0 = 0xD2511F53, kMul1 = 0xCD9E8D57, kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  CounterBits c{{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(of.stream),
                 static_cast<uint32_t>(of.stream >> 32)}};
  uint32_t key0 = static_cast<uint32_t>(of.key), key1 = static_cast<uint32_t>(of.key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kMul0} * c.at[0], p1 = uint64_t{kMul1} * c.at[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.at[1] ^ key0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.at[3] ^ key1, static_cast<uint32_t>(p0)}};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

/// Returns ln(u) for a normal u in (0, 1], to about one ULP. Let u = 2^e · m with m in (√½, √2], and let f = m − 1 and
/// s = f / (2 + f). Then ln(m) = 2 · artanh(s) = 2s + 2s · (s²/3 + s⁴/5 + …). |s| is at most 0.172, so the first term
/// that is left out, s²²/23, is below 2^-60 of the first.
constexpr double log_of_unit(double u) {
  constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;  // e · kLn2High is exact for |e| < 2^21
  const auto bits = std::bit_cast<uint64_t>(u);
  auto e = static_cast<double>(static_cast<int64_t>(bits >> 52) - 1023);
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000);  // in [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    e += 1;
  }
  const double f = m - 1, s = f / (2 + f), s2 = s * s;
  double p = 1.0 / 21;
  p = p * s2 + 1.0 / 19;
  p = p * s2 + 1.0 / 17;
  p = p * s2 + 1.0 / 15;
  p = p * s2 + 1.0 / 13;
  p = p * s2 + 1.0 / 11;
  p = p * s2 + 1.0 / 9;
  p = p * s2 + 1.0 / 7;
  p = p * s2 + 1.0 / 5;
  p = p * s2 + 1.0 / 3;
  // 2s = f − s · f, of which f is exact.
  const double log_m = f - s * (f - 2 * s2 * p);
  return e * kLn2High + (e * kLn2Low + log_m);
}

struct SineAndCosine {
  double sine, cosine;
};

/// Returns both for an angle in [0, 7], each to about one ULP: Taylor's series of what is left of the angle after
/// subtracting the nearest multiple of π/2, at most π/4; the first terms that are left out are below 2^-60 of the
/// first.
constexpr SineAndCosine sine_and_cosine(double angle) {
  // π/2 in three parts; the first two have 33 bits, so that their products with n are exact.
  constexpr double kHalfPi1 = 0x1.921fb544p0, kHalfPi2 = 0x1.0b4611a6p-34, kHalfPi3 = 0x1.3198a2e037073p-69;
  const auto quarter = static_cast<int64_t>(angle * 0x1.45f306dc9c883p-1 + 0.5);
  const auto n = static_cast<double>(quarter);
  const double r = ((angle - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3, z = r * r;
  double s = 1.0 / 355687428096000;  // 17!
  s = 1.0 / 1307674368000 - z * s;
  s = 1.0 / 6227020800 - z * s;
  s = 1.0 / 39916800 - z * s;
  s = 1.0 / 362880 - z * s;
  s = 1.0 / 5040 - z * s;
  s = 1.0 / 120 - z * s;
  s = 1.0 / 6 - z * s;
  const double sine = r - r * (z * s);
  double c = 1.0 / 6402373705728000;  // 18!
  c = 1.0 / 20922789888000 - z * c;
  c = 1.0 / 87178291200 - z * c;
  c = 1.0 / 479001600 - z * c;
  c = 1.0 / 3628800 - z * c;
  c = 1.0 / 40320 - z * c;
  c = 1.0 / 720 - z * c;
  c = 1.0 / 24 - z * c;
  const double half = 0.5 * z, near = 1 - half;  // the rounding of `near` is added back
  const double cosine = near + (((1 - near) - half) + z * (z * c));
  switch (quarter & 3) {
    case 0: return {sine, cosine};
    case 1: return {cosine, -sine};
    case 2: return {-sine, -cosine};
    default: return {-cosine, sine};
  }
}

/// Two independent standard normal numbers before their last step: radius · cosine and radius · sine, where radius is
/// the square root of `squared_radius` (which is no constexpr function).
struct NormalPair {
  double squared_radius, sine, cosine;
};

/// Returns the pair of bits(index), by Box-Muller.
constexpr NormalPair normal_pair(const CounterBits& b) {
  // The radius must not be log(0): (x + 1) / 2^32 is above 0.
  const double u = (static_cast<double>(b.at[0]) + 1.0 + static_cast<double>(b.at[2] >> 12) * 0x1.0p-20) * 0x1.0p-32;
  const double turn = (static_cast<double>(b.at[1]) + static_cast<double>(b.at[3]) * 0x1.0p-32) * 0x1.0p-32;
  const SineAndCosine of = sine_and_cosine(0x1.921fb54442d18p2 * turn);  // 2π
  return {-2.0 * log_of_unit(u < 1.0 ? u : 1.0), of.sine, of.cosine};
}

}  // namespace athanor
