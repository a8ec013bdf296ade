#pragma once
// SWIPE: every expert gets exactly the same number of choices. Source: BaGuaLu §4.2, which mentions the extension to
// top-k.

#include <cstdint>
#include <span>

namespace athanor::moe {

/// Makes each of `num_experts` experts appear exactly tokens · k / num_experts times in ids, and no token have an
/// expert twice.
///
/// The best choices are placed first: all tokens' first choices, in token order, then all second ones, and so on. A
/// choice whose expert is full overflows. The overflow is then placed, in the same order, in the experts with room, in
/// their order; a token passes over experts that it has. If a token already has all experts with room, it takes an
/// expert of another token that lacks one of these, and that token takes this one instead.
///
/// The result is a function of `ids` alone: equal on every rank that has them. Time: linear in tokens · k +
/// num_experts, for k bounded (each choice is compared with the k of its token).
/// @param ids  [tokens, k], best first, no token with an expert twice, all in [0, num_experts).
/// @return how many choices went to an expert that their token had not chosen; at least Σ max(0, count − even share)
///         over experts.
/// @throws Error if num_experts does not divide tokens · k.
int64_t swipe(std::span<int64_t> ids, int64_t k, int64_t num_experts);

}  // namespace athanor::moe
