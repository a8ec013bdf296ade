#include "metrics/layer_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "arch/model_spec.h"
#include "train/state_pieces.h"

namespace athanor::inline metrics {

// What a row of the sums has: sums of squares, and with histograms the sums and counts of gradients and weights.
struct LayerStatistics::Columns {
  static constexpr int64_t kUpdate = 0, kActivation = 1;
  static constexpr int64_t kGradient = 2, kSquares = 0, kSum = 1, kCounts = 2;  // the last three: within what follows
  static int64_t weight(bool histograms) { return kGradient + size(histograms); }
  static int64_t size(bool histograms) { return histograms ? kCounts + Histogram::kBins : 1; }
  static int64_t total(bool histograms) { return weight(histograms) + size(histograms); }
};

LayerStatistics::LayerStatistics(const TrainState& state, bool histograms)
    : state_(state), histograms_(histograms), num_layers_(state.config.model.num_hidden_layers) {
  const ModelState& model = state.model;
  const Layout& layout = model.mesh.layout();
  const bool shares_tokens = state.config.parallelism.sequence_parallel && layout.tensor() > 1;
  counts_activations_ = shares_tokens || layout.coordinate(model.mesh.rank(), Axis::kTensor) == 0;
  for (const auto& [entry, range] : canonical_parts(model))
    pieces_.push_back({range, std::min(entry->forward_index, num_layers_ + 1)});
  sums_ =
      at::zeros({num_layers_ + 2, Columns::total(histograms)}, at::TensorOptions(at::kDouble).device(model.device()));
  activations_.resize(static_cast<size_t>(num_layers_));
  logits_.resize(static_cast<size_t>(num_layers_));
}

double* LayerStatistics::cell(int64_t row, int64_t column) {
  return sums_.data_ptr<double>() + row * sums_.size(1) + column;
}

void LayerStatistics::observe(const Observation& o) {
  if (o.phase != Observation::Phase::kForward) return;
  const auto [layer, part] = place_in_layer(family_of(state_.config.model).names, o.place);
  if (layer < 0) return;
  if (part == ".logits") {
    Tensor& largest = logits_.at(static_cast<size_t>(layer));
    const Tensor here = o.tensor.amax().to(at::kDouble);
    largest = largest.defined() ? at::maximum(largest, here) : here;
  } else if (part.empty() && counts_activations_) {
    Tensor& squares = activations_.at(static_cast<size_t>(layer));
    squares = squares.defined() ? squares + ops::squares_of(o.tensor) : ops::squares_of(o.tensor);
  }
}

// Adds `values` to the row's gradients or weights, whose columns begin at `first_column`.
void LayerStatistics::add_values(int64_t row, int64_t first_column, const Tensor& values) {
  ops::add_statistics(values, sums_[row].narrow(0, first_column, Columns::size(histograms_)));
}

void LayerStatistics::read_gradients() {
  for (const Piece& piece : pieces_)
    add_values(piece.row, Columns::kGradient,
               state_.model.parameters.grad().narrow(0, piece.range.begin, piece.range.size()));
}

void LayerStatistics::before_update(FlatRange range) {
  before_.clear();
  for_each_piece_in(pieces_, range, [&](FlatRange here, const Piece& piece) {
    const Tensor master = state_.model.parameters.master_there(here);
    before_.push_back(master.is_alias_of(state_.model.parameters.compute()) ? master.clone() : master);
    add_values(piece.row, Columns::weight(histograms_), before_.back());
  });
}

void LayerStatistics::after_update(FlatRange range) {
  auto before = before_.begin();
  for_each_piece_in(pieces_, range, [&](FlatRange here, const Piece& piece) {
    const Tensor change = ops::squared_change(state_.model.parameters.master_there(here), *before++);
    sums_[piece.row][Columns::kUpdate].add_(change);
  });
}

std::vector<Tensor*> LayerStatistics::numbers() {
  std::vector<Tensor*> all = {&sums_};
  for (auto* each : {&activations_, &logits_})
    for (Tensor& x : *each)
      if (x.defined()) all.push_back(&x);
  return all;
}

LayerMetrics LayerStatistics::take(int64_t tokens) {
  Tensor largest = at::full({num_layers_}, -std::numeric_limits<double>::infinity(), at::kDouble);
  for (int64_t layer = 0; layer < num_layers_; ++layer) {
    const auto& [squares, logit] =
        std::tie(activations_[static_cast<size_t>(layer)], logits_[static_cast<size_t>(layer)]);
    if (squares.defined()) *cell(1 + layer, Columns::kActivation) = squares.item<double>();
    if (logit.defined()) largest[layer] = logit.item<double>();
  }
  comm::Communicator& world = state_.model.mesh.group(GroupKind::kWorld);
  world.all_reduce(sums_).wait();
  world.all_reduce(largest, comm::Reduction::kMax).wait();
  LayerMetrics metrics;
  const auto histogram_at = [&](int64_t row, int64_t column) {
    const double* counts = cell(row, column + Columns::kCounts);
    return Histogram{{},
                     *cell(row, column + Columns::kSum),
                     *cell(row, column + Columns::kSquares),
                     {counts, counts + Histogram::kBins}};
  };
  const double elements = static_cast<double>(tokens * state_.config.model.hidden_size);
  for (int64_t row = 0; row < sums_.size(0); ++row) {
    metrics.grad_norm.push_back(std::sqrt(*cell(row, Columns::kGradient)));
    metrics.weight_norm.push_back(std::sqrt(*cell(row, Columns::weight(histograms_))));
    metrics.update_norm.push_back(std::sqrt(*cell(row, Columns::kUpdate)));
    if (histograms_) {
      metrics.gradients.push_back(histogram_at(row, Columns::kGradient));
      metrics.weights.push_back(histogram_at(row, Columns::weight(true)));
    }
  }
  for (int64_t layer = 0; layer < num_layers_; ++layer) {
    metrics.activation_rms.push_back(std::sqrt(*cell(1 + layer, Columns::kActivation) / elements));
    metrics.attention_logit_max.push_back(largest[layer].item<double>());
  }
  return metrics;
}

}  // namespace athanor::inline metrics
