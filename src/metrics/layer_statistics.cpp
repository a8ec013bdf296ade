#include "metrics/layer_statistics.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <limits>
#include <mutex>
#include <string_view>

#include "kernels/adamw.h"
#include "train/state_pieces.h"

namespace athanor::inline metrics {

int Histogram::bin_of(float value) {
  const auto magnitude = static_cast<int>(std::bit_cast<uint32_t>(std::abs(value)) >> 22);  // exponent and one more bit
  const int above = magnitude - 2 * (127 + kLowest);                                        // 127: fp32's bias
  if (above < 0) return kMagnitudes;
  const int outwards = std::min(above, kMagnitudes - 1);
  return value < 0 ? kMagnitudes - 1 - outwards : kMagnitudes + 1 + outwards;
}

double Histogram::upper_edge(int bin) {
  const auto edge = [](int i) { return std::ldexp(i % 2 == 0 ? 1.0 : 1.5, kLowest + i / 2); };
  return bin < kMagnitudes ? -edge(kMagnitudes - 1 - bin) : edge(bin - kMagnitudes);
}

// What a row of the sums has: sums of squares, and with histograms the sums and counts of gradients and weights.
struct LayerStatistics::Columns {
  static constexpr int64_t kUpdate = 0, kActivation = 1;
  static constexpr int64_t kGradient = 2, kSquares = 0, kSum = 1, kCounts = 2;  // the last three: within what follows
  static int64_t weight(bool histograms) { return kGradient + size(histograms); }
  static int64_t size(bool histograms) { return histograms ? kCounts + Histogram::kBins : 1; }
  static int64_t total(bool histograms) { return weight(histograms) + size(histograms); }
};

namespace {

constexpr int64_t kBlock = int64_t{1} << 16;

// Adds up sum(block begin, size) over blocks of [0, count) in order, whatever the threads.
template <class Sum>
double sum_of_blocks(int64_t count, Sum sum) {
  std::vector<double> sums(static_cast<size_t>((count + kBlock - 1) / kBlock));
  at::parallel_for(0, static_cast<int64_t>(sums.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      sums[static_cast<size_t>(i)] = sum(i * kBlock, std::min(kBlock, count - i * kBlock));
  });
  double total = 0;
  for (const double each : sums) total += each;
  return total;
}

// Returns Σ x², fp64, where x is.
Tensor squares_of(const Tensor& x) {
  if (!x.is_cpu()) return at::linalg_vector_norm(x, 2, {}, false, at::kDouble).square();
  const Tensor flat = x.reshape({-1});
  return at::scalar_tensor(sum_of_blocks(flat.numel(),
                                         [&](int64_t begin, int64_t size) {
                                           const Tensor block = flat.narrow(0, begin, size).to(at::kFloat);
                                           return kernels::sum_of_squares(block.const_data_ptr<float>(), size);
                                         }),
                           at::kDouble);
}

// Returns the bins (Histogram::bin_of) of fp32 values, where they are.
Tensor bins_of(const Tensor& values) {
  const Tensor magnitude = values.view(at::kInt).bitwise_and(0x7fffffff).bitwise_right_shift(22);
  const Tensor above = magnitude - 2 * (127 + Histogram::kLowest);
  const Tensor outwards = above.clamp_max(Histogram::kMagnitudes - 1);
  const Tensor signed_bin =
      at::where(values.lt(0), Histogram::kMagnitudes - 1 - outwards, Histogram::kMagnitudes + 1 + outwards);
  return signed_bin.masked_fill(above.lt(0), Histogram::kMagnitudes).to(at::kLong);
}

// Splits "model.layers.3" and "model.layers.3.logits" into the layer and ".logits". Returns −1 for other places.
std::pair<int64_t, std::string_view> layer_of(std::string_view place) {
  constexpr std::string_view kPrefix = "model.layers.";
  int64_t layer = -1;
  if (!place.starts_with(kPrefix)) return {-1, place};
  place.remove_prefix(kPrefix.size());
  const auto number = std::from_chars(place.data(), place.data() + place.size(), layer);
  place.remove_prefix(static_cast<size_t>(number.ptr - place.data()));
  return {layer, place};
}

}  // namespace

LayerStatistics::LayerStatistics(const TrainState& state, bool histograms)
    : state_(state), histograms_(histograms), num_layers_(state.config.model.num_hidden_layers) {
  const ModelState& model = state.model;
  const Layout& layout = model.mesh.layout();
  const bool shares_tokens = state.config.parallelism.sequence_parallel && layout.tensor() > 1;
  counts_activations_ = shares_tokens || layout.coordinate(model.mesh.rank(), Axis::kTensor) == 0;
  for (const auto& [entry, range] : canonical_parts(model))
    pieces_.push_back({range, std::min(entry->forward_index, num_layers_ + 1)});
  const at::Device device = model.device();
  on_device_ = !device.is_cpu();
  sums_ = at::zeros({num_layers_ + 2, Columns::total(histograms)}, at::TensorOptions(at::kDouble).device(device));
  activations_.resize(static_cast<size_t>(num_layers_));
  logits_.resize(static_cast<size_t>(num_layers_));
}

double* LayerStatistics::cell(int64_t row, int64_t column) {
  return sums_.data_ptr<double>() + row * sums_.size(1) + column;
}

void LayerStatistics::observe(const Observation& o) {
  if (o.phase != Observation::Phase::kForward) return;
  const auto [layer, part] = layer_of(o.place);
  if (layer < 0) return;
  if (part == ".logits") {
    Tensor& largest = logits_.at(static_cast<size_t>(layer));
    const Tensor here = o.tensor.amax().to(at::kDouble);
    largest = largest.defined() ? at::maximum(largest, here) : here;
  } else if (part.empty() && counts_activations_) {
    Tensor& squares = activations_.at(static_cast<size_t>(layer));
    squares = squares.defined() ? squares + squares_of(o.tensor) : squares_of(o.tensor);
  }
}

// Adds `values` to the row's gradients or weights, whose columns begin at `first_column`.
void LayerStatistics::add_values(int64_t row, int64_t first_column, const float* values, int64_t count) {
  *cell(row, first_column + Columns::kSquares) +=
      sum_of_blocks(count, [&](int64_t begin, int64_t size) { return kernels::sum_of_squares(values + begin, size); });
  if (!histograms_) return;
  std::mutex mutex;
  double* counts = cell(row, first_column + Columns::kCounts);
  *cell(row, first_column + Columns::kSum) += sum_of_blocks(count, [&](int64_t begin, int64_t size) {
    double sum = 0;
    std::vector<double> here(Histogram::kBins);
    for (int64_t i = begin; i < begin + size; ++i) {
      sum += values[i];
      ++here[static_cast<size_t>(Histogram::bin_of(values[i]))];
    }
    const std::lock_guard lock(mutex);  // whole numbers: their order does not matter
    for (size_t bin = 0; bin < here.size(); ++bin) counts[bin] += here[bin];
    return sum;
  });
}

// Counts are whole numbers, so that it does not matter in which order a device adds them.
void LayerStatistics::add_on_device(int64_t row, int64_t first_column, const Tensor& values) {
  const Tensor columns = sums_[row].narrow(0, first_column, Columns::size(histograms_));
  for (int64_t begin = 0; begin < values.numel(); begin += kUpdateBlock) {
    const Tensor block = values.narrow(0, begin, std::min(kUpdateBlock, values.numel() - begin));
    columns[Columns::kSquares].add_(squares_of(block));
    if (!histograms_) continue;
    columns[Columns::kSum].add_(block.sum(at::kDouble));
    const Tensor bins = bins_of(block);
    const Tensor counts = at::zeros({Histogram::kBins}, bins.options()).scatter_add_(0, bins, at::ones_like(bins));
    columns.narrow(0, Columns::kCounts, Histogram::kBins).add_(counts);
  }
}

void LayerStatistics::read_gradients() {
  if (on_device_) {
    for (const Piece& piece : pieces_)
      add_on_device(piece.row, Columns::kGradient,
                    state_.model.parameters.grad().narrow(0, piece.range.begin, piece.range.size()));
    return;
  }
  const auto* grad = state_.model.parameters.grad().const_data_ptr<float>();
  for (const Piece& piece : pieces_)
    add_values(piece.row, Columns::kGradient, grad + piece.range.begin, piece.range.size());
}

void LayerStatistics::before_update(FlatRange range) {
  before_.clear();
  there_before_.clear();
  if (on_device_) {
    return for_each_piece_in(pieces_, range, [&](FlatRange here, const Piece& piece) {
      const Tensor master = state_.model.parameters.master_there(here);
      there_before_.push_back(master.is_alias_of(state_.model.parameters.compute()) ? master.clone() : master);
      add_on_device(piece.row, Columns::weight(histograms_), there_before_.back());
    });
  }
  for_each_piece_in(pieces_, range, [&](FlatRange here, const Piece& piece) {
    const size_t begin = before_.size();
    before_.resize(begin + static_cast<size_t>(here.size()));
    state_.model.parameters.read_master(here.begin, {before_.data() + begin, static_cast<size_t>(here.size())});
    add_values(piece.row, Columns::weight(histograms_), before_.data() + begin, here.size());
  });
}

void LayerStatistics::after_update(FlatRange range) {
  if (on_device_) {
    auto before = there_before_.begin();
    return for_each_piece_in(pieces_, range, [&](FlatRange here, const Piece& piece) {
      const Tensor change = state_.model.parameters.master_there(here).to(at::kDouble) - *before++;
      sums_[piece.row][Columns::kUpdate].add_(squares_of(change));
    });
  }
  const float* before = before_.data();
  for_each_piece_in(pieces_, range, [&](FlatRange here, const Piece& piece) {
    *cell(piece.row, Columns::kUpdate) += sum_of_blocks(here.size(), [&](int64_t begin, int64_t size) {
      std::vector<float> after(static_cast<size_t>(size));
      state_.model.parameters.read_master(here.begin + begin, after);
      double sum = 0;
      for (int64_t i = 0; i < size; ++i) {
        const double change = static_cast<double>(after[static_cast<size_t>(i)]) - before[begin + i];
        sum += change * change;
      }
      return sum;
    });
    before += here.size();
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
    return Histogram{*cell(row, column + Columns::kSum),
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
