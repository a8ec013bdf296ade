#include "verify/second_backwards.h"

#include <algorithm>
#include <cmath>

#include "arch/inventory.h"
#include "arch/model_spec.h"
#include "kernels/cross_entropy.h"
#include "layout/optimizer_state.h"
#include "ops/transfer.h"
#include "train/microbatch.h"
#include "train/state_pieces.h"
#include "verify/parts.h"
#include "verify/record_copies.h"

namespace athanor::inline verify {
namespace {

constexpr int64_t kNotDrawnHere = -1;

int64_t count_tokens(const RunConfig& config) { return config.train.global_batch_size * config.data.seq_len; }

std::string label_tensor() { return std::string(kLabelKind) + "/" + kLabelName; }

// A logit is the product of a row of the output layer with a normed vector. So an error of that vector, in any
// direction, moves it by the row's norm.
double largest_row_norm(const RunConfig& config, const WholeTrace& trace, int64_t step) {
  const auto inventory = make_inventory(config.model);
  const auto of_role = [&](Role role) {
    return std::ranges::find_if(inventory, [&](const ParameterSpec& spec) { return spec.role == role; });
  };
  auto output = of_role(Role::kOutput);
  if (output == inventory.end()) output = of_role(Role::kEmbedding);
  const auto& rows = trace.values(step, "master", output->name);
  const int64_t width = output->shape.back();
  double largest = 0;
  for (int64_t row = 0; (row + 1) * width <= std::ssize(rows); ++row)
    largest = std::max(largest, norm_of(rows.data() + row * width, width));
  const auto& norm = trace.values(step, "master", make_model_spec(config.model).final_norm.weight());
  if (norm.empty()) return largest;  // a norm without weights
  return largest * norm_of(norm.data(), std::ssize(norm)) / std::sqrt(static_cast<double>(norm.size()));
}

}  // namespace

bool has_second_backward(const RunConfig& config, int64_t step) {
  const OptimizerPlan plan = plan_optimizers(config.optimizer);
  return std::ranges::any_of(plan.optimizers, [](const auto& each) { return each.needs.second_backward; }) &&
         (step - 1) % config.optimizer.hessian_interval == 0;
}

int64_t targets_in_step(const RunConfig& config) { return config.train.global_batch_size * (config.data.seq_len - 1); }

namespace {

// Tensor ranks draw together, and have the same labels.
void add_labels(const TrainState& state, int64_t step, const Tensor& labels_drawn, Trace& trace) {
  const Tensor drawn = ops::fetch(labels_drawn);
  const Mesh& mesh = state.model.mesh;
  const int64_t seq_len = state.config.data.seq_len, tokens = drawn.numel();
  for (const int64_t sequence : sequences_of(mesh.layout(), mesh.data_rank(), state.config.train.micro_batch_size)) {
    const Tensor labels = drawn.narrow(0, sequence * seq_len, seq_len);
    if (labels[0].item<int64_t>() == kNotDrawnHere) continue;
    trace.add_copy(fmt::format("step {}: the labels drawn for sequence {}", step, sequence),
                   labels.const_data_ptr<int64_t>(), labels.nbytes());
    if (mesh.group(GroupKind::kTensor).rank() != 0) continue;
    const Tensor values = labels.to(at::kFloat);  // exact below 2^24
    trace.add_pieces(
        step, {{label_tensor(), box_slice({tokens}, {sequence * seq_len}, {seq_len}), values.const_data_ptr<float>()}});
  }
}

void add_gradients(const TrainState& state, int64_t step, Trace& trace) {
  auto pieces = gradient_pieces(state.model);
  for (PieceView& piece : pieces) piece.tensor = "drawn_" + piece.tensor;
  trace.add_pieces(step, pieces);
  add_gradient_copies(state.model, fmt::format("step {}: the summed gradient on drawn labels", step), trace);
}

}  // namespace

void record_second_backward(TrainState& state, Step& step, Trace& trace, const WholeTrace* given) {
  const auto options = at::TensorOptions(at::kLong).device(state.model.device());
  const auto labels = std::make_shared<ops::DrawnLabels>();
  labels->drawn = at::full({count_tokens(state.config)}, kNotDrawnHere, options);
  const int64_t number = state.position.step + 1;
  if (given) labels->given = labels_in(*given, state.config, number).to(options.device());
  if (!step.second_backward(labels)) return;
  add_labels(state, number, labels->drawn, trace);
  add_gradients(state, number, trace);
  step.learn_from_second();
}

Tensor labels_in(const WholeTrace& trace, const RunConfig& config, int64_t step) {
  const Tensor labels = at::full({count_tokens(config)}, kernels::kNoTarget, at::kLong);
  const auto& values = trace.values(step, kLabelKind, kLabelName);
  const int64_t most = std::min<int64_t>(std::ssize(values), labels.numel());
  for (int64_t i = 0; i < most; ++i) {
    const auto label = static_cast<int64_t>(values[static_cast<size_t>(i)]);
    // What no rank drew is reported as such.
    if (label >= 0 && label < config.model.vocab_size && (i + 1) % config.data.seq_len != 0) labels[i] = label;
  }
  return labels;
}

int64_t most_changed_labels(double mean) {
  constexpr double kChance = 1e-10;
  auto k = static_cast<int64_t>(mean);
  const auto chance_above = [&](int64_t changed) {
    const auto more = static_cast<double>(changed + 1);
    return std::exp(more - mean + more * std::log(mean / more));
  };
  while (chance_above(k) > kChance) ++k;
  return k;
}

Comparison compare_drawn_labels(const RunConfig& small, const Noise& noise, const WholeTrace& layout,
                                const WholeTrace& one, int64_t step) {
  // The largest value of a row is compared in fp32 over tensor ranks (parallel/vocabulary.cpp): it is below 32.
  constexpr double kDrawing = 0x1p-19;
  const Tensor ours = labels_in(layout, small, step), theirs = labels_in(one, small, step);
  const auto targets = static_cast<double>(targets_in_step(small));
  const Tensor differ = ours.ne(theirs);
  const auto changed = differ.sum().item<int64_t>();
  const double deviation = noise.logits() * largest_row_norm(small, layout, step - 1);
  const double mean = targets * std::min(1.0, deviation / std::sqrt(2.0) + kDrawing);
  Comparison found{kDrawnLabels, "labels", step, static_cast<double>(changed) / targets,
                   static_cast<double>(most_changed_labels(mean)) / targets};
  if (changed == 0) return found;
  const auto first = differ.to(at::kLong).argmax().item<int64_t>();
  found.name = fmt::format("labels (sequence {}, token {}: {} instead of {}; {} of {} differ)",
                           first / small.data.seq_len, first % small.data.seq_len, ours[first].item<int64_t>(),
                           theirs[first].item<int64_t>(), changed, targets_in_step(small));
  return found;
}

}  // namespace athanor::inline verify
