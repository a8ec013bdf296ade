#pragma once
// The second backwards of a run, for optimizers that learn from labels drawn from the model's own probabilities
// (Sophia-G): recorded in a trace, and compared as the first backwards are.
//
// A label is the id with the largest logit plus a number of a counter (kernels/label_draw.h). So a rounding of the
// logits changes it if the two largest are close. Then the gradients of two right runs have nothing in common. So the
// reference draws its labels and records them, but learns from those that the layout drew: gradients are compared on
// the same labels, and labels are compared by themselves.
//
// How many labels rounding changes: let p be the probabilities of a row, and δ what two runs' logits differ by. With
// the same numbers of the counter, both runs draw id i with the probability 1 / Σ_j (p_j / p_i) max(1, exp(δ_j − δ_i)).
// So they draw different ids, to first order, with the probability Σ_ij p_i p_j |δ_i − δ_j| / 2. This is at most σ / √2
// if the δ have the deviation σ. Over n rows that is λ = n σ / √2 labels in the mean. By Chernoff's bound there are
// more than k with a probability of at most exp(−λ) (e λ / (k + 1))^(k + 1). The bound is the least k for which this is
// at most 10⁻¹⁰.

#include "ops/label_draw.h"
#include "train/train_step.h"
#include "verify/compare.h"

namespace athanor::inline verify {

inline constexpr const char *kDrawnLabels = "drawn labels", *kDrawnGradients = "gradients, drawn labels";

/// Kinds of a trace's tensors (WholeTrace::values): gradients of the second backward of a step, "drawn_grad/NAME", and
/// the labels that were drawn for it, "labels/drawn", one for each token of the batch.
inline constexpr const char *kDrawnGradKind = "drawn_grad", *kLabelKind = "labels", *kLabelName = "drawn";

/// Returns true if a run has a second backward at update `step`.
bool has_second_backward(const RunConfig& config, int64_t step);
/// Returns the number of targets of a step: of each sequence all tokens but the last have one.
int64_t targets_in_step(const RunConfig& config);

/// Runs the second backward of a step of `state`, if it has one, and records the labels that this process drew, and the
/// summed gradients. Ranks that hold copies of either must have the same bits. Collective as Step::second_backward.
/// @param given  null, or the trace whose labels the state learns from, in place of those that it draws.
void record_second_backward(TrainState& state, Step& step, Trace& trace, const WholeTrace* given = nullptr);

/// Returns the labels that `trace` has for a step, int64 [tokens of the batch]; −100 for those that it lacks.
Tensor labels_in(const WholeTrace& trace, const RunConfig& config, int64_t step);

/// Compares the labels that a layout drew at a step with those that the reference drew from the same parameters.
/// @param one  the reference's trace.
Comparison compare_drawn_labels(const RunConfig& small, const Noise& noise, const WholeTrace& layout,
                                const WholeTrace& one, int64_t step);
/// Returns the largest number of labels that rounding may change. @param mean  λ above.
int64_t most_changed_labels(double mean);

}  // namespace athanor::inline verify
