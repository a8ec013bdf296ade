#pragma once
// How the ranks of a group take turns, so that each measures its messages to the next one and is in one pair at a time.

namespace athanor::inline watch {

/// Pairs whose first rank is even go first, then those in which it is odd, then the one that is left of an odd number
/// of ranks.
inline constexpr int kNumWaves = 3;

/// The other rank of this rank's pair in a wave, and whether this rank is the first of the two; with −1: it has none.
struct Neighbour {
  int with = -1;
  bool begins = false;
};

/// @param size  of the group; after its last rank comes its first one. A rank alone has no pair, and two ranks have one
///              pair twice: each is first once.
inline Neighbour neighbour_in(int wave, int rank, int size) {
  if (size < 2) return {};
  const auto wave_of = [&](int first) { return first == size - 1 && size % 2 == 1 ? 2 : first % 2; };
  const int before = (rank + size - 1) % size;
  if (wave_of(rank) == wave) return {(rank + 1) % size, true};
  if (wave_of(before) == wave) return {before, false};
  return {};
}

}  // namespace athanor::inline watch
