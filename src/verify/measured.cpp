#include "verify/measured.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "arch/model_spec.h"
#include "verify/compare.h"
#include "verify/own_gradients.h"
#include "verify/parts.h"
#include "verify/second_backwards.h"

namespace athanor::inline verify {
namespace {

constexpr const char *kGroups = "gradients of all layers", *kScale = "gradients' scale";
constexpr std::array kMeasuredQuantities = {kFirstParameters, kNumbers,        kNormQuantity,    kCounts,
                                            kFirstGradients,  kLaterGradients, kDrawnLabels,     kDrawnGradients,
                                            kGroups,          kScale,          kHessianQuantity, kParametersQuantity};

// A gradient that only rounding makes: below a rounding of a thousandth of the model's root mean square.
constexpr double kLeast = 1e-3 * 0x1p-8;
// Squared, for a number: the rounding of a sum over tokens in fp32, where bf16 may be exact by chance.
constexpr double kLeastScale = 0x1p-40;

// Returns "model.layers.*.mlp.gate.weight": all tensors with the same purpose.
std::string group_of(const ModelConfig& model, const ParameterSpec& spec) {
  const auto [layer, part] = place_in_layer(family_of(model).names, spec.name);
  return layer < 0 ? spec.name : fmt::format("{}.*{}", family_of(model).names.layers, part);
}

// The ranks of a vocabulary share rows, and one wrong row at a border is a small part of the whole.
bool is_compared_by_row(const ParameterSpec& spec) {
  return spec.role == Role::kEmbedding || spec.role == Role::kOutput;
}

}  // namespace

MeasuredComparison::MeasuredComparison(const RunConfig& small, int data_ranks, c10::Device device)
    : config_(small), noise_(small, data_ranks, Reference::kOneRank, device), inventory_(make_inventory(small.model)) {}

void MeasuredComparison::add(const WholeTrace& layout, const WholeTrace& one, const WholeTrace& truth) {
  auto& faults = found_.comparisons.faults;
  faults.insert(faults.end(), layout.faults().begin(), layout.faults().end());
  const int64_t steps = std::min({layout.num_steps(), one.num_steps(), truth.num_steps()});
  if (steps < truth.num_steps()) {
    faults.push_back(fmt::format("the layout took {} steps, one rank {} and in float32 {}", layout.num_steps(),
                                 one.num_steps(), truth.num_steps()));
  }
  compare_initial(layout, one, truth);
  for (int64_t step = 1; step <= steps; ++step) {
    add_numbers(step, layout.step(step), one.step(step), truth.step(step));
    add_counts(step, layout.step(step), one.step(step), truth.step(step));
    add_gradients(step, kGradKind, step == 1 ? kFirstGradients : kLaterGradients, layout, one, truth);
    if (!has_second_backward(config_, step)) continue;
    add_bounded(compare_drawn_labels(config_, noise_, layout, one, step), fmt::format("step {}", step), false);
    add_gradients(step, kDrawnGradKind, kDrawnGradients, layout, one, truth);
  }
  for (const Comparison& own : compare_with_own_gradients(config_, layout))
    add_bounded(own, fmt::format("step {}", own.step), false);
}

// @param step  as printed: "step 1", or for several "steps 2 to 3".
void MeasuredComparison::add_bounded(const Comparison& comparison, const std::string& step, bool measured) {
  Comparison here = comparison;
  if (!(here.error <= 1e300)) here.error = 1e300;  // NaN
  Comparison& worst = worst_[here.quantity];
  here.compared = worst.compared + 1;
  if (worst.compared == 0 || here.share() > worst.share()) {
    worst = here;
  } else {
    ++worst.compared;
  }
  if (here.error <= here.bound) return;
  const std::string line = here.bound > 0
                               ? fmt::format("{}: {}: {} is off by {:.1e} of its size; rounding explains {:.1e}", step,
                                             here.quantity, here.name, here.error, here.bound)
                               : fmt::format("{}: {}: {} is not equal (off by {:.1e} of its size)", step, here.quantity,
                                             here.name, here.error);
  if (measured) {
    failed_.push_back({here.share(), here.quantity + ": " + here.name, line});
  } else {
    found_.comparisons.faults.push_back(line);
  }
}

void MeasuredComparison::add_equal(const std::string& quantity, const std::string& name, int64_t step, bool equal,
                                   double error) {
  add_bounded({quantity, name, step, equal ? 0 : error, 0}, fmt::format("step {}", step), false);
}

void MeasuredComparison::add_numbers(int64_t step, const StepNumbers& layout, const StepNumbers& one,
                                     const StepNumbers& truth) {
  const auto pool = [&](const char* quantity, const char* name, double l, double b, double t) {
    const double size = std::max(std::abs(t), 1e-300), ours = (l - t) / size, theirs = (b - t) / size;
    pooled_[{quantity, name}].add_number(ours * ours, theirs * theirs * noise_.layout_factor(), kLeastScale, 1);
  };
  pool(kNumbers, "loss", layout.loss, one.loss, truth.loss);
  pool(kNormQuantity, "gradient norm", layout.grad_norm, one.grad_norm, truth.grad_norm);
  add_equal(kNumbers, "targets", step, layout.targets == truth.targets && one.targets == truth.targets, 1);
  add_equal(kNormQuantity, "learning rate", step, layout.lr == truth.lr, 1);
  if (truth.chosen.empty()) return;
  pool(kNumbers, "aux", layout.aux, one.aux, truth.aux);
  pool(kNumbers, "z", layout.z, one.z, truth.z);
  pool(kNumbers, "router entropy", layout.entropy, one.entropy, truth.entropy);
}

void MeasuredComparison::add_counts(int64_t step, const StepNumbers& layout, const StepNumbers& one,
                                    const StepNumbers& truth) {
  if (truth.chosen.empty()) return;
  for (const auto& [what, counts] : {std::pair{"chosen", &StepNumbers::chosen},
                                     {"taken", &StepNumbers::taken},
                                     {"moved", &StepNumbers::moved},
                                     {"dropped", &StepNumbers::dropped}}) {
    ATHANOR_CHECK_AS(Error, one.*counts == truth.*counts,
                     "step {}: one rank counts other choices in bfloat16 than in float32 ({})", step, what);
    const auto difference =
        compare_expert_counts(what, layout.*counts, truth.*counts, config_.model.num_sparse_layers());
    add_equal(kCounts, difference.name, step, difference.error == 0, difference.error);
  }
}

void MeasuredComparison::add_gradients(int64_t step, const char* kind, const char* quantity, const WholeTrace& layout,
                                       const WholeTrace& one, const WholeTrace& truth) {
  const double rms = root_mean_square(truth, inventory_, step, kind);
  const std::string of_kind = kind == std::string(kGradKind) ? "" : " on drawn labels";
  const int64_t width = config_.model.hidden_size;
  struct Along {
    double layout = 0, one = 0, size = 0;  // components along the truth; its square
  };
  std::map<std::string, Along> groups;
  std::map<std::string, std::array<double, 4>> sums;  // for each group: squares of both errors, additional variance,
                                                      // size
  for (const auto& spec : inventory_) {
    const auto &l = layout.values(step, kind, spec.name), &b = one.values(step, kind, spec.name),
               &t = truth.values(step, kind, spec.name);
    if (l.size() != t.size() || b.size() != t.size()) {
      found_.comparisons.faults.push_back(fmt::format("step {}: {}: {} has {} elements, with one rank {}", step,
                                                      quantity, spec.name, l.size(), t.size()));
      continue;
    }
    const auto pool = [&](const std::string& name, int64_t begin, int64_t end) {
      const int64_t n = end - begin;
      const float *x = l.data() + begin, *y = b.data() + begin, *z = t.data() + begin;
      const double size = dot(z, z, n), least = kLeast * rms;
      const double ours = square_distance(x, z, n), theirs = square_distance(y, z, n) * noise_.layout_factor(),
                   more = noise_.reduction_variance() * size + least * least * static_cast<double>(n);
      pooled_[{quantity, name}].add(ours, theirs, more, size, freedom_of(n, width));
      return std::array{ours, theirs, more, size};
    };
    for_parts(spec, [&](const std::string& name, int64_t begin, int64_t end) {
      const auto part = pool(name, begin, end);
      auto& group = sums[group_of(config_.model, spec)];
      for (size_t i = 0; i < part.size(); ++i) group[i] += part[i];
      if (!is_compared_by_row(spec)) return;
      for (int64_t row = 0; row < spec.shape[0]; ++row)
        pool(fmt::format("{} row {}", name, row), row * width, (row + 1) * width);
    });
    Along& along = groups[group_of(config_.model, spec)];
    const int64_t n = spec.num_elements();
    const double size = dot(t.data(), t.data(), n);
    along.layout += dot(l.data(), t.data(), n) - size, along.one += dot(b.data(), t.data(), n) - size;
    along.size += size;
  }
  for (const auto& [name, along] : groups) {
    if (along.size == 0) continue;
    const auto& [ours, theirs, more, size] = sums[name];
    // Twice the value of a tensor: a step's roundings have more in common than those of one layer.
    pooled_[{kGroups, name + of_kind}].add(ours, theirs, more, size, 2 * freedom_of(width, width));
    const double l = along.layout / along.size, b = along.one / along.size;
    pooled_[{kScale, name + of_kind}].add_number(l * l, b * b * noise_.layout_factor(),
                                                 noise_.reduction_variance() / static_cast<double>(width) + kLeastScale,
                                                 1);
  }
}

void MeasuredComparison::compare_initial(const WholeTrace& layout, const WholeTrace& one, const WholeTrace& truth) {
  for (const auto& spec : inventory_) {
    const auto &a = layout.values(0, "master", spec.name), &b = one.values(0, "master", spec.name),
               &t = truth.values(0, "master", spec.name);
    add_equal(kFirstParameters, spec.name, 0, a == b, 1);
    // In bf16 a master is stored in halves. A master in the middle between two weights is read back one bit off
    // (master.h).
    ATHANOR_CHECK_AS(Error, b.size() == t.size(), "{} has {} elements in bfloat16 and {} in float32", spec.name,
                     b.size(), t.size());
    for (size_t i = 0; i < b.size(); ++i) {
      ATHANOR_CHECK_AS(Error, std::abs(b[i] - t[i]) <= 0x1p-22F * std::abs(t[i]),
                       "{}[{}] begins at {} in bfloat16 and at {} in float32", spec.name, i, b[i], t[i]);
    }
  }
}

MeasuredComparison::Findings MeasuredComparison::finish() {
  for (const char* quantity : kMeasuredQuantities) {
    const bool first = quantity == kFirstGradients;
    const char* steps = first ? "step 1" : quantity == kLaterGradients ? "later steps" : "all steps";
    for (const auto& [key, noise] : pooled_) {
      if (key.quantity != quantity) continue;
      add_bounded({key.quantity, key.name, first ? 1 : 0, noise.error(), noise.bound()}, steps, true);
    }
    if (worst_[quantity].compared > 0) {
      worst_[quantity].quantity = quantity;
      found_.comparisons.worst.push_back(worst_[quantity]);
    }
  }
  std::ranges::stable_sort(failed_, std::greater{}, &Failed::share);
  for (Failed& one : failed_) found_.failed.emplace_back(std::move(one.name), std::move(one.line));
  return std::move(found_);
}

double noise_ratio(double freedom) { return std::exp(std::acosh(std::pow(kChanceOnce, -1 / std::max(1.0, freedom)))); }

double freedom_of(int64_t elements, int64_t width) {
  constexpr int64_t kMost = 32;
  return static_cast<double>(std::min({elements, width, kMost})) / 2;
}

void PooledNoise::pool(double layout, double one, double size, double freedom, double weight) {
  layout_ += layout, one_ += one, size_ += size;
  if (size == 0 && layout == 0) return;  // absent: an expert without tokens
  weights_ += weight, squared_weights_ += weight * weight / freedom;
}

double PooledNoise::relative(double square) const { return std::sqrt(size_ > 0 ? square / size_ : square); }

// If one step has most of the error, it has most of the degrees of freedom (Satterthwaite, Biometrics Bulletin 1946).
double PooledNoise::bound() const {
  const double freedom = squared_weights_ > 0 ? weights_ * weights_ / squared_weights_ : 1;
  return noise_ratio(freedom) * relative(one_);
}

}  // namespace athanor::inline verify
