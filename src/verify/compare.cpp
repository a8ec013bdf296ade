#include "verify/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "verify/cancelling.h"
#include "verify/expert_counts.h"
#include "verify/own_gradients.h"
#include "verify/parts.h"
#include "verify/quantities.h"
#include "verify/second_backwards.h"

namespace athanor::inline verify {
namespace {

constexpr const char* kComparedQuantities[] = {kFirstParameters, kNumbers,           kNormQuantity, kCounts,
                                               kFirstGradients,  kLaterGradients,    kDrawnLabels,  kDrawnGradients,
                                               kHessianQuantity, kParametersQuantity};

class Comparer {
 public:
  Comparer(const RunConfig& small, const Noise& noise, const WholeTrace& layout, const WholeTrace& one)
      : config_(small), noise_(noise), layout_(layout), one_(one),
        inventory_(make_inventory(small.model)), gradients_{kGradKind,
                                                            CancellingSizes(config_, layout_, one_, kGradKind)},
        drawn_{kDrawnGradKind, CancellingSizes(config_, layout_, one_, kDrawnGradKind)} {}

  Comparisons run() {
    for (const char* quantity : kComparedQuantities) worst_[quantity].quantity = quantity;
    result_.faults = layout_.faults();
    const int64_t steps = std::min(layout_.num_steps(), one_.num_steps());
    if (layout_.num_steps() != one_.num_steps()) {
      result_.faults.push_back(
          fmt::format("the layout took {} steps, one rank {}", layout_.num_steps(), one_.num_steps()));
    }
    compare_initial_parameters();
    for (int64_t step = 1; step <= steps; ++step) {
      const bool good_so_far = result_.faults.empty();
      compare_numbers(step);
      compare_gradients(step, gradients_, step == 1 ? kFirstGradients : kLaterGradients);
      if (has_second_backward(config_, step)) {
        add(compare_drawn_labels(config_, noise_, layout_, one_, step));
        compare_gradients(step, drawn_, kDrawnGradients);
      }
      if (good_so_far && !result_.faults.empty()) note_near_tie(step);
    }
    for (const Comparison& own : compare_with_own_gradients(config_, layout_)) add(own);
    for (const char* quantity : kComparedQuantities)
      if (worst_[quantity].compared > 0) result_.worst.push_back(worst_[quantity]);
    return std::move(result_);
  }

 private:
  void add(const std::string& quantity, const std::string& name, int64_t step, double error, double bound) {
    if (!(error <= 1e300)) error = 1e300;  // NaN
    Comparison& worst = worst_[quantity];
    const Comparison here{quantity, name, step, error, bound, worst.compared + 1};
    if (worst.compared == 0 || here.share() > worst.share()) {
      worst = here;
    } else {
      ++worst.compared;
    }
    if (error <= bound) return;
    result_.faults.push_back(
        bound > 0
            ? fmt::format("step {}: {}: {} is off by {:.1e} of its size; rounding explains {:.1e}", step, quantity,
                          name, error, bound)
            : fmt::format("step {}: {}: {} is not equal (off by {:.1e} of its size)", step, quantity, name, error));
  }

  void add(const Comparison& c) { add(c.quantity, c.name, c.step, c.error, c.bound); }

  void add_number(const char* quantity, const char* name, int64_t step, double a, double b, double bound) {
    const double size = std::max(std::abs(b), 1e-300);
    add(quantity, name, step, a == b ? 0 : std::abs(a - b) / size, bound);
  }

  void compare_numbers(int64_t step) {
    const StepNumbers &a = layout_.step(step), &b = one_.step(step);
    const double bound = noise_.loss();
    add_number(kNumbers, "loss", step, a.loss, b.loss, bound);
    add_number(kNumbers, "targets", step, static_cast<double>(a.targets), static_cast<double>(b.targets), 0);
    if (!b.chosen.empty()) {
      add_number(kNumbers, "aux", step, a.aux, b.aux, bound);
      add_number(kNumbers, "z", step, a.z, b.z, 2 * bound);  // a square
      add_number(kNumbers, "router entropy", step, a.entropy, b.entropy, bound);
      compare_counts(step, "chosen", a.chosen, b.chosen);
      compare_counts(step, "taken", a.taken, b.taken);
      compare_counts(step, "moved", a.moved, b.moved);
      compare_counts(step, "dropped", a.dropped, b.dropped);
    }
    add_number(kNormQuantity, "gradient norm", step, a.grad_norm, b.grad_norm, noise_.gradient());
    add_number(kNormQuantity, "learning rate", step, a.lr, b.lr, 0);
  }

  void compare_counts(int64_t step, const char* what, const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    const auto difference = compare_expert_counts(what, a, b, config_.model.num_sparse_layers());
    add(kCounts, difference.name, step, difference.error, 0);
  }

  // Notes a step in which something differs. One token with another choice changes the loss by at most its own share.
  void note_near_tie(int64_t step) {
    constexpr int64_t kTokens = 2;
    const StepNumbers &a = layout_.step(step), &b = one_.step(step);
    int64_t off = 0;
    for (size_t i = 0; i < std::min(a.chosen.size(), b.chosen.size()); ++i) off += std::abs(a.chosen[i] - b.chosen[i]);
    const bool by_scores = config_.moe.balance == "capacity" || config_.moe.balance == "swipe";
    const bool few = off <= 2 * kTokens && (off > 0 || (by_scores && !b.chosen.empty()));
    const double share = static_cast<double>(kTokens) / static_cast<double>(std::max<int64_t>(1, b.targets));
    result_.near_tie = few && a.targets == b.targets && std::abs(a.loss - b.loss) <= share * b.loss;
  }

  bool both_hold(const ParameterSpec& spec, const char* quantity, int64_t step, const std::vector<float>& a,
                 const std::vector<float>& b) {
    if (a.size() == b.size() && static_cast<int64_t>(b.size()) == spec.num_elements()) return true;
    result_.faults.push_back(fmt::format("step {}: {}: {} has {} elements, with one rank {}", step, quantity, spec.name,
                                         a.size(), b.size()));
    return false;
  }

  // A gradient that vanishes by cancellation has the errors of the terms that cancel. So no gradient's bound is less
  // than for a thousandth of the model's root mean square.
  double least_gradient(int64_t step, const char* kind) const {
    return 1e-3 * root_mean_square(one_, inventory_, step, kind);
  }

  // Gradients of a kind, and the sizes of those that cancel.
  struct Gradients {
    const char* kind;
    CancellingSizes cancelling;
  };

  void compare_gradients(int64_t step, const Gradients& gradients, const char* quantity) {
    const double least = least_gradient(step, gradients.kind);
    for (const auto& spec : inventory_) {
      const auto &a = layout_.values(step, gradients.kind, spec.name),
                 &b = one_.values(step, gradients.kind, spec.name);
      if (!both_hold(spec, quantity, step, a, b)) continue;
      const double cancelling = gradients.cancelling.size(spec, step);
      for_parts(spec, [&](const std::string& name, int64_t begin, int64_t end) {
        const double size = std::max({norm_of(b.data() + begin, end - begin), cancelling,
                                      least * std::sqrt(static_cast<double>(end - begin))}),
                     off = distance(a.data() + begin, b.data() + begin, end - begin);
        add(quantity, name, step, off == 0 ? 0 : off / size, noise_.gradient());
      });
    }
  }

  void compare_initial_parameters() {
    for (const auto& spec : inventory_) {
      const auto &a = layout_.values(0, "master", spec.name), &b = one_.values(0, "master", spec.name);
      if (!both_hold(spec, kFirstParameters, 0, a, b)) continue;
      for_parts(spec, [&](const std::string& name, int64_t begin, int64_t end) {
        const double size = std::max(norm_of(b.data() + begin, end - begin), 1e-300);
        add(kFirstParameters, name, 0, distance(a.data() + begin, b.data() + begin, end - begin) / size, 0);
      });
    }
  }

  RunConfig config_;
  Noise noise_;
  const WholeTrace &layout_, &one_;
  std::vector<ParameterSpec> inventory_;
  Gradients gradients_, drawn_;
  std::map<std::string, Comparison> worst_;
  Comparisons result_;
};

}  // namespace

Comparisons compare_traces(const RunConfig& small, int data_ranks, const WholeTrace& layout, const WholeTrace& one,
                           Reference reference, bool on_device) {
  return Comparer(small, Noise(small, data_ranks, reference, on_device), layout, one).run();
}

std::vector<std::string> find_bit_differences(const RunConfig& small, const WholeTrace& a, const WholeTrace& b) {
  std::vector<std::string> lines;
  for (int64_t step = 0; step <= std::min(a.num_steps(), b.num_steps()); ++step) {
    if (step > 0 && a.step(step) != b.step(step)) lines.push_back(fmt::format("step {}: the reported numbers", step));
    for (const auto& spec : make_inventory(small.model)) {
      for (const char* kind : {kGradKind, kDrawnGradKind, "master"}) {
        const auto &x = a.values(step, kind, spec.name), &y = b.values(step, kind, spec.name);
        if (x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0) continue;
        lines.push_back(fmt::format("step {}: {} of {}", step, kind, spec.name));
      }
    }
    if (!lines.empty()) break;
  }
  return lines;
}

}  // namespace athanor::inline verify
