#pragma once
// The optimizers, as far as configurations, checkpoints and memory formulas have to know them.
//
// A further one is a row in optimizer_table.cpp, with its options in optimizer_config.h; a class in optim/ with a line
// in optim/optimizer_set.cpp; and its replay in verify/replay/ with a line in replay.cpp there.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace athanor::inline config {

/// What an optimizer needs from the ranks before it can update (optim/optimizer.h); each costs communication.
struct OptimizerNeeds {
  bool tensor_norms = false;     ///< sums over whole tensors (optim/tensor_sums.h)
  bool home_matrices = false;    ///< each whole matrix on one rank that computes it (optim/home_matrices.h)
  bool second_backward = false;  ///< a second backward, for gradients of the loss on other labels (Sophia)
};

/// How learning rates follow the width: the power of r in the rate of each class of parameters (arch/width_scaling.h).
/// A power is −1, 0, 1/2 or 1.
struct WidthRule {
  double input, hidden, output;
};

struct OptimizerRow {
  std::string name;
  std::vector<std::string> state;         ///< kinds of state: a fp32 number for each element of a parameter
  std::vector<std::string_view> options;  ///< its fields of [optimizer], of those that only some optimizers have
  OptimizerNeeds needs = {};
  std::optional<WidthRule> width_rule = {};  ///< none: not known
  bool decays_in_direction = false;          ///< its decay is a part of a direction whose length is chosen
};

/// Returns the rows, in the order in which messages list them.
const std::vector<OptimizerRow>& optimizer_table();
/// @throws Error if there is none of this name: a bug, since configurations are checked.
const OptimizerRow& optimizer_row(const std::string& name);
/// Returns the names, in the same order.
std::vector<std::string> optimizer_names();

}  // namespace athanor::inline config
