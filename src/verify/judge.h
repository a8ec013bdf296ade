#pragma once
// Rank 0's judgement of the traces of a layout's runs and the reference's, which it reads from files and prints.

#include <set>
#include <string>

#include "verify/verify.h"

namespace athanor::inline verify {

enum Outcome : int64_t {
  kPassed,
  kFailed,
  kDrawAgain,  ///< undecided: the runs have to be repeated on other data
};

/// Judges runs in fp32, which are compared on one data set, by bounds.
/// @param num_ranks  number of the layout's ranks.
/// @param root  folder that has a folder for each data set (trace_folder.h).
/// @param draw  number of the data set.
/// @param last  there is no other data set to draw, so the outcome is kPassed or kFailed.
/// @return kDrawAgain, with nothing printed, if a token was at a tie between two experts (Comparisons::near_tie).
Outcome judge_bounded(const TypedRun& run, const VerifyRequest& request, int num_ranks,
                      const std::filesystem::path& root, int draw, bool last);

/// The names of measured comparisons that failed on the first data sets.
using Suspects = std::set<std::string>;

/// Judges runs in bf16 by measured noise, on data sets [first, first + request.draws) together. A comparison counts as
/// failed only if it fails on other data too.
/// @param first  1, or, if that call returned kDrawAgain, 1 + request.draws.
/// @param suspects  the call with `first` = 1 sets it to the comparisons that failed; the other call reads it.
/// @return kDrawAgain, with nothing printed, if `first` is 1 and measured comparisons failed, but no others.
Outcome judge_measured(const TypedRun& run, const VerifyRequest& request, int num_ranks,
                       const std::filesystem::path& root, int first, Suspects& suspects);

}  // namespace athanor::inline verify
