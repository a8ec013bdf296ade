#pragma once
// What rank 0 finds in the traces of a layout's runs and the reference's, printed.

#include <set>
#include <string>

#include "train/verify/verify.h"

namespace athanor {

enum Outcome : int64_t { kPassed, kFailed, kDrawAgain };

/// In fp32, or held against portable forms: of one data set, by bounds. @param last  there is no other data set to
/// draw.
/// @return kDrawAgain, and nothing printed, if a token stood between two experts.
Outcome judge_bounded(const TypedRun& run, const VerifyRequest& request, int num_ranks,
                      const std::filesystem::path& root, int draw, bool last);

/// Measured comparisons that failed on the first data sets, by name.
using Suspects = std::set<std::string>;

/// In bf16, by measured noise: of draws [first, first + request.draws). What fails must fail on other data too.
/// @param suspects  of the draws before these; then, what failed here.
Outcome judge_measured(const TypedRun& run, const VerifyRequest& request, int num_ranks,
                       const std::filesystem::path& root, int first, Suspects& suspects);

}  // namespace athanor
