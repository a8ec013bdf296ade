#pragma once
// Which rank does the work of which other one when a step is computed again on other nodes (watch/step_again.h).

#include <optional>
#include <vector>

#include "layout/layout.h"

namespace athanor::inline watch {

struct StandIns {
  /// What a rank takes over: the sequences of another data rank, for which it has the same weights; or another rank's
  /// place in the layout, with its weights, where no other node has these.
  enum class TakesOver { kSequences, kPlace };
  TakesOver what = TakesOver::kSequences;
  /// kSequences: data rank d does the work of data rank d − shift (mod data ranks), which has its other coordinates.
  /// kPlace: rank r does that of rank r − shift (mod ranks).
  int shift = 0;

  /// Returns the rank that does the work of `rank`.
  int stand_in_for(const Layout& layout, int rank) const;
  /// Returns the rank whose work `rank` does.
  int replaced_by(const Layout& layout, int rank) const;
};

/// Returns stand-ins of which the one for `rank` is on another node; nothing if all ranks are on one node. They take
/// over sequences if some node other than this rank's has its weights, those of its experts too.
/// @param node_of_rank  for each rank of the layout.
std::optional<StandIns> choose_stand_ins(const Layout& layout, const std::vector<int>& node_of_rank, int rank);

}  // namespace athanor::inline watch
