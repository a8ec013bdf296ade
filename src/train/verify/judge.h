#pragma once
// Rank 0's judgement of the traces of a layout's runs and the reference's, which it prints.

#include <set>
#include <string>

#include "train/verify/verify.h"

namespace athanor {

enum Outcome : int64_t { kPassed, kFailed, kDrawAgain };

/// Judges runs in fp32, or compared with portable forms: on one data set, by bounds.
/// @param last  there is no other data set to draw.
/// @return kDrawAgain, with nothing printed, if a token was at a tie between two experts.
Outcome judge_bounded(const TypedRun& run, const VerifyRequest& request, int num_ranks,
                      const std::filesystem::path& root, int draw, bool last);

/// The names of measured comparisons that failed on the first data sets.
using Suspects = std::set<std::string>;

/// Judges runs in bf16 by measured noise: draws [first, first + request.draws). A comparison counts as failed only if
/// it fails on other data too.
/// @param suspects  in: those of the draws before these; out: the comparisons that failed here.
Outcome judge_measured(const TypedRun& run, const VerifyRequest& request, int num_ranks,
                       const std::filesystem::path& root, int first, Suspects& suspects);

}  // namespace athanor
