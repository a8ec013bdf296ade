#pragma once
// The rules of moe/balance.h on a device, with the choices of the rules on the host. Each is one launch, and groups are
// processed at the same time.
//
// Choices are int64 ids [groups, tokens, k]. `chosen` is what routers chose, `ids` what the rule makes of it; they may
// not overlap. All pointers are in the stream's memory.

#include <cstdint>

#include "kernels/cuda/stream.h"

namespace athanor::kernels::cuda {

/// The choices of groups of equal size.
struct ChoiceGroups {
  int64_t groups = 0, tokens = 0, k = 0;  ///< tokens of a group; choices of a token
  int64_t num_experts = 0;

  int64_t choices() const { return tokens * k; }  ///< number of choices in a group
};

/// Gives choice c of a group the expert c mod num_experts.
void force_uniform(const Stream& stream, int64_t* ids, const ChoiceGroups& in);

/// Leaves to each expert its first `capacity` choices of a group, by descending score, of equal ones the earlier; the
/// others become ~expert. A score that is NaN counts as −1.
/// @param scores  [groups · tokens, num_experts]; null: all are equal, so the earliest choices stay.
void keep_capacity(const Stream& stream, const int64_t* chosen, const float* scores, int64_t* ids, int64_t capacity,
                   const ChoiceGroups& in);

/// Returns the number of int64 elements that `workspace` of swipe must have.
int64_t swipe_workspace(const ChoiceGroups& in);

/// SWIPE (moe/swipe.cpp): every expert gets exactly choices() / num_experts choices of a group, which must be a whole
/// number.
void swipe(const Stream& stream, const int64_t* chosen, int64_t* ids, int64_t* workspace, const ChoiceGroups& in);

}  // namespace athanor::kernels::cuda
