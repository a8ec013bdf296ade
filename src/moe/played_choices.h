#pragma once
// The numbers of rows and choices that a dispatch reads on the host, for a played step (ops/played.h): those that are
// expected if each expert gets its share, and a token's choices are different experts.

#include <cstdint>

namespace athanor::moe {

/// A range of the model's experts.
struct ExpertRange {
  int64_t first, count;
};

/// Returns the choices of `tokens` tokens that are among these experts.
int64_t played_choices(int64_t tokens, ExpertRange experts);

/// Returns how many tokens have a choice among `experts`, of those that have one among `known`, a range around it. If
/// tokens take experts in turn, they are the first ones of a microbatch.
int64_t played_tokens(int64_t tokens, ExpertRange experts, ExpertRange known);

}  // namespace athanor::moe
