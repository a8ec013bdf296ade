#pragma once
// Labels drawn from a model's own probabilities (kernels/label_draw.h), on any device. Source: Liu et al. 2023,
// algorithm 2 (Gauss-Newton-Bartlett).

#include <memory>

#include "ops/cross_entropy_parts.h"
#include "ops/tensor.h"

namespace athanor::ops {

/// The labels that a step draws, for those who compare runs: a rounding of the logits may change a label, and then
/// nothing else can be compared. int64, one value for each row of the step, on the device of the logits.
struct DrawnLabels {
  Tensor drawn;  ///< takes the label of each row that is drawn in this process; −100 for rows without a target
  Tensor given;  ///< the labels that take the place of those drawn; undefined: these are used
};

/// Whether labels are drawn, and by which numbers. They depend on the key and on the row's and the id's number alone.
struct LabelDraw {
  bool draws = false;  ///< false: the targets are the labels
  uint64_t key = 0;
  int64_t first_row = 0;                                ///< the number in the step of the first row
  std::shared_ptr<const DrawnLabels> record = nullptr;  ///< null, as in training: nothing is recorded or given

  LabelDraw from_row(int64_t row) const { return {draws, key, first_row + row, record}; }
};

/// Writes the largest value and its id for each row of the part, of this part's ids: fp32 and int64 [rows]. Of parts of
/// one vocabulary the largest value wins, and of equal ones the lowest id. Rows without a target get −∞ and −100.
void draw_labels_into(const LogitsPart& part, const LabelDraw& draw, int64_t vocab_size, const Tensor& largest,
                      const Tensor& ids);

/// Records labels that were drawn for the rows from draw.first_row on.
/// @return the labels to learn from: those that are given for these rows, else `drawn`.
Tensor recorded(const LabelDraw& draw, const Tensor& drawn);

/// Returns the labels of rows of logits of the whole vocabulary: drawn ones, or the targets if nothing is drawn.
Tensor labels_of(const Tensor& logits, const Tensor& targets, const LabelDraw& draw);

namespace portable {
void draw_labels_into(const LogitsPart& part, const LabelDraw& draw, int64_t vocab_size, const Tensor& largest,
                      const Tensor& ids);
}

}  // namespace athanor::ops
