#pragma once
// SWIPE: every expert gets exactly the same number of choices. Source: BaGuaLu §4.2, extended there to top-k in a word.

#include <cstdint>
#include <span>

namespace athanor::moe {

/// Makes each of `num_experts` experts appear exactly tokens · k / num_experts times in ids, no token with one twice.
///
/// Best choice first: all tokens' first choices are placed, in token order, then all second ones, and so on; what
/// finds its expert full overflows. Overflow then goes, in the same order, to the experts with room, in theirs: a token
/// passes over those it has. Where a token has all that are left, it takes an expert of a token that lacks one of
/// them, which takes that one instead.
///
/// A function of `ids` alone: the same on every rank that has them. Time: linear in tokens · k + num_experts, for k
/// bounded (each choice compares with the k of its token).
/// @param ids  [tokens, k], best first, no token with an expert twice, all in [0, num_experts).
/// @return how many choices went to an expert that their token had not chosen; at least Σ max(0, count − even share).
/// @throws Error if num_experts does not divide tokens · k.
int64_t swipe(std::span<int64_t> ids, int64_t k, int64_t num_experts);

}  // namespace athanor::moe
