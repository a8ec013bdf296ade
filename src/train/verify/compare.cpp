#include "train/verify/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include "config/families.h"
#include "optim/clip.h"
#include "train/verify/cancelling.h"
#include "train/verify/parts.h"

namespace athanor {
namespace {

constexpr const char* kNumbers = "loss and its parts";
constexpr const char* kNorm = "gradient norm";
constexpr const char* kCounts = "expert counts";
constexpr const char* kFirstGradients = "gradients, step 1";
constexpr const char* kLaterGradients = "gradients, later";
constexpr const char* kFirstParameters = "initial parameters";
constexpr const char* kParameters = "parameters";

class Comparer {
 public:
  Comparer(const RunConfig& small, int data_ranks, const WholeTrace& layout, const WholeTrace& one, Reference reference)
      : config_(small), noise_(small, data_ranks, reference), layout_(layout), one_(one),
        inventory_(make_inventory(small.model)), cancelling_(config_, one_) {
    for (const auto& spec : inventory_) updates_.emplace_back(small.optimizer, spec.shape);
  }

  Comparisons run() {
    for (const char* quantity :
         {kFirstParameters, kNumbers, kNorm, kCounts, kFirstGradients, kLaterGradients, kParameters})
      worst_[quantity].quantity = quantity;
    result_.faults = layout_.faults();
    const int64_t steps = std::min(layout_.num_steps(), one_.num_steps());
    if (layout_.num_steps() != one_.num_steps()) {
      result_.faults.push_back(
          fmt::format("the layout took {} steps, one rank {}", layout_.num_steps(), one_.num_steps()));
    }
    compare_parameters(0);
    for (int64_t step = 1; step <= steps; ++step) {
      const bool good_so_far = result_.faults.empty();
      compare_numbers(step);
      compare_gradients(step);
      if (good_so_far && !result_.faults.empty()) note_near_tie(step);
      follow_update(step);
      compare_parameters(step);
    }
    for (const char* quantity :
         {kFirstParameters, kNumbers, kNorm, kCounts, kFirstGradients, kLaterGradients, kParameters})
      if (worst_[quantity].compared > 0) result_.worst.push_back(worst_[quantity]);
    return std::move(result_);
  }

 private:
  void add(const char* quantity, const std::string& name, int64_t step, double error, double bound) {
    if (!(error <= 1e300)) error = 1e300;  // not a number
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

  void add_number(const char* quantity, const char* name, int64_t step, double a, double b, double bound) {
    const double size = std::max(std::abs(b), 1e-300);
    add(quantity, name, step, a == b ? 0 : std::abs(a - b) / size, bound);
  }

  void compare_numbers(int64_t step) {
    const StepNumbers &a = layout_.step(step), &b = one_.step(step);
    allow_other_choices(a, b);
    const double drift = noise_.of_parameters(parameter_difference_),
                 bound = noise_.loss() + drift + static_cast<double>(total_flips_) / static_cast<double>(b.targets);
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
    add_number(kNorm, "gradient norm", step, a.grad_norm, b.grad_norm, gradient_bound());
    add_number(kNorm, "learning rate", step, a.lr, b.lr, 0);
  }

  // Where scores are noisy (bf16; parameters that gradients of bf16 have moved), some tokens choose other experts in
  // one run than in the other. How many may, and, as it seems, did.
  void allow_other_choices(const StepNumbers& a, const StepNumbers& b) {
    const auto layers = static_cast<size_t>(config_.model.num_sparse_layers());
    flips_.assign(layers, 0);
    total_flips_ = may_flip_ = 0;
    if (b.chosen.empty() || a.chosen.size() != b.chosen.size()) return;
    const size_t width = b.chosen.size() / layers;
    choices_ = std::accumulate(b.chosen.begin(), b.chosen.begin() + static_cast<std::ptrdiff_t>(width), int64_t{0});
    may_flip_ = static_cast<int64_t>(noise_.choices(parameter_difference_) * static_cast<double>(choices_));
    constexpr int64_t kFew = 4;  // are better met by other data: all bounds stay tight
    if (may_flip_ < kFew) may_flip_ = 0;
    if (may_flip_ == 0) return;
    for (size_t l = 0; l < layers; ++l) {
      int64_t off = 0;
      for (size_t e = l * width; e < (l + 1) * width; ++e) off += std::abs(a.chosen[e] - b.chosen[e]);
      // Some may have changed places; what is balanced by scores goes on to move others.
      flips_[l] = std::min(may_flip_, balanced_by_scores() ? may_flip_ : off + 2);
      total_flips_ += flips_[l];
    }
  }
  bool balanced_by_scores() const { return config_.moe.balance == "capacity" || config_.moe.balance == "swipe"; }

  // A token that goes to another expert changes gradients as if it were another token, there and before.
  double gradient_bound() const {
    const double all =
        static_cast<double>(std::max<int64_t>(1, choices_)) * static_cast<double>(std::max<size_t>(1, flips_.size()));
    return noise_.gradient() + noise_.of_parameters(parameter_difference_) +
           2 * std::sqrt(static_cast<double>(total_flips_) / all);
  }
  double expert_bound(const StepNumbers& numbers, int64_t layer, int64_t expert) const {
    int64_t sparse = 0;
    for (int64_t l = 0; l < layer; ++l) sparse += config_.model.is_sparse_layer(l);
    const auto at = static_cast<size_t>(sparse * config_.model.num_experts + expert);
    const double share = static_cast<double>(flips_.at(static_cast<size_t>(sparse))) /
                         static_cast<double>(std::max<int64_t>(1, numbers.taken.at(at)));
    return gradient_bound() + 2 * std::sqrt(share);
  }

  // Of a step in which something is off. One token elsewhere changes the loss by at most its own share of it.
  void note_near_tie(int64_t step) {
    constexpr int64_t kTokens = 2;
    const StepNumbers &a = layout_.step(step), &b = one_.step(step);
    int64_t off = 0;
    for (size_t i = 0; i < std::min(a.chosen.size(), b.chosen.size()); ++i) off += std::abs(a.chosen[i] - b.chosen[i]);
    const bool few = off <= 2 * kTokens && (off > 0 || (balanced_by_scores() && !b.chosen.empty()));
    const double share = static_cast<double>(kTokens) / static_cast<double>(std::max<int64_t>(1, b.targets));
    result_.near_tie = few && a.targets == b.targets && std::abs(a.loss - b.loss) <= share * b.loss;
  }

  void compare_counts(int64_t step, const char* what, const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
    if (a.size() != b.size()) return add(kCounts, what, step, 1, 0);
    double difference = 0, all = 0;
    size_t first = a.size();
    for (size_t i = 0; i < a.size(); ++i) {
      difference += std::abs(static_cast<double>(a[i] - b[i]));
      all += static_cast<double>(b[i]);
      if (a[i] != b[i]) first = std::min(first, i);
    }
    std::string name = what;
    if (first < a.size()) {
      const size_t layers = static_cast<size_t>(config_.model.num_sparse_layers()), width = a.size() / layers;
      name += width > 1 ? fmt::format(" (sparse layer {}, expert {}: {} instead of {})", first / width, first % width,
                                      a[first], b[first])
                        : fmt::format(" (sparse layer {}: {} instead of {})", first, a[first], b[first]);
    }
    // One that flips leaves an expert and comes to another.
    const double layers = static_cast<double>(flips_.size()), may = 2 * static_cast<double>(may_flip_) * layers;
    add(kCounts, name, step, difference / std::max(all, 1.0), may / std::max(all, 1.0));
  }

  bool both_hold(const ParameterSpec& spec, const char* quantity, int64_t step, const std::vector<float>& a,
                 const std::vector<float>& b) {
    if (a.size() == b.size() && static_cast<int64_t>(b.size()) == spec.num_elements()) return true;
    result_.faults.push_back(fmt::format("step {}: {}: {} has {} elements, with one rank {}", step, quantity, spec.name,
                                         a.size(), b.size()));
    return false;
  }

  // A gradient that vanishes by cancellation has the errors of what cancels. So none is held against less than a
  // thousandth of the model's root mean square.
  double least_gradient(const StepNumbers& numbers) const {
    return 1e-3 * numbers.grad_norm / std::sqrt(static_cast<double>(count_parameters(config_.model)));
  }

  void compare_gradients(int64_t step) {
    const char* quantity = step == 1 ? kFirstGradients : kLaterGradients;
    const StepNumbers& numbers = one_.step(step);
    for (const auto& spec : inventory_) {
      const auto &a = layout_.values(step, "grad", spec.name), &b = one_.values(step, "grad", spec.name);
      if (!both_hold(spec, quantity, step, a, b)) continue;
      const double cancelling = cancelling_.size(spec, step);
      for_parts(spec, [&](const std::string& name, int64_t begin, int64_t end) {
        const double bound =
            spec.is_expert() ? expert_bound(numbers, spec.layer, begin / (end - begin)) : gradient_bound();
        // An expert that got a token in one run alone has a gradient there alone.
        const double moved = spec.is_expert() && total_flips_ > 0 ? norm_of(a.data() + begin, end - begin) : 0;
        const double size = std::max(norm_of(b.data() + begin, end - begin), moved),
                     floor =
                         std::max(least_gradient(numbers) * std::sqrt(static_cast<double>(end - begin)), cancelling);
        const double off = distance(a.data() + begin, b.data() + begin, end - begin);
        add(quantity, name, step, off == 0 ? 0 : off / std::max(size, floor), bound);
      });
    }
  }

  void follow_update(int64_t step) {
    const StepNumbers& numbers = one_.step(step);
    const double scale = clip_scale(config_.optimizer, numbers.grad_norm, step);
    // The norm's error scales all gradients alike, where they are clipped.
    for (size_t i = 0; i < inventory_.size(); ++i) {
      double relative = gradient_bound() * (scale < 1 ? 2 : 1);
      if (inventory_[i].is_expert() && total_flips_ > 0) relative += 2;  // as if all of a seldom expert's were others
      const std::string& name = inventory_[i].name;
      const auto &grad = one_.values(step, "grad", name), &other = layout_.values(step, "grad", name),
                 &square = one_.values(step, "exp_avg_sq", name), &master = one_.values(step, "master", name);
      const double least = std::max(
          least_gradient(numbers), cancelling_.size(inventory_[i], step) / std::sqrt(static_cast<double>(grad.size())));
      if (grad.size() == other.size() && grad.size() == square.size() && grad.size() == master.size())
        updates_[i].add_step({step, numbers.lr, scale, relative, least}, grad, other, square, master);
    }
  }

  void compare_parameters(int64_t step) {
    const char* quantity = step == 0 ? kFirstParameters : kParameters;
    double differences = 0;
    for (size_t i = 0; i < inventory_.size(); ++i) {
      const ParameterSpec& spec = inventory_[i];
      const auto &a = layout_.values(step, "master", spec.name), &b = one_.values(step, "master", spec.name);
      if (!both_hold(spec, quantity, step, a, b)) continue;
      // What is beyond its own bound must not widen those of later steps, where it would hide.
      const double whole = std::max(norm_of(b.data(), spec.num_elements()), 1e-300),
                   allowed = updates_[i].norm(0, spec.num_elements());
      const double relative = std::min(distance(a.data(), b.data(), spec.num_elements()), allowed) / whole;
      differences += relative * relative;
      for_parts(spec, [&](const std::string& name, int64_t begin, int64_t end) {
        const double size = std::max(norm_of(b.data() + begin, end - begin), 1e-300);
        const double off = distance(a.data() + begin, b.data() + begin, end - begin);
        add(quantity, name, step, off / size, step == 0 ? 0 : updates_[i].norm(begin, end) / size);
      });
    }
    parameter_difference_ = std::sqrt(differences);
  }

  RunConfig config_;
  Noise noise_;
  const WholeTrace &layout_, &one_;
  std::vector<ParameterSpec> inventory_;
  std::vector<UpdateNoise> updates_;
  CancellingSizes cancelling_;
  // Of this step: how many choices of a layer may differ, and seem to, in each layer and in all; a layer's choices.
  int64_t may_flip_ = 0, total_flips_ = 0, choices_ = 0;
  std::vector<int64_t> flips_;
  // After the last step, √Σ(‖ΔW‖ / ‖W‖)²: as measured, and no more than the bounds on the updates so far allowed.
  double parameter_difference_ = 0;
  std::map<std::string, Comparison> worst_;
  Comparisons result_;
};

}  // namespace

Comparisons compare_traces(const RunConfig& small, int data_ranks, const WholeTrace& layout, const WholeTrace& one,
                           Reference reference) {
  return Comparer(small, data_ranks, layout, one, reference).run();
}

std::vector<std::string> find_bit_differences(const RunConfig& small, const WholeTrace& a, const WholeTrace& b) {
  std::vector<std::string> lines;
  for (int64_t step = 0; step <= std::min(a.num_steps(), b.num_steps()); ++step) {
    if (step > 0 && a.step(step) != b.step(step)) lines.push_back(fmt::format("step {}: the reported numbers", step));
    for (const auto& spec : make_inventory(small.model)) {
      for (const char* kind : {"grad", "master"}) {
        const auto &x = a.values(step, kind, spec.name), &y = b.values(step, kind, spec.name);
        if (x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0) continue;
        lines.push_back(fmt::format("step {}: {} of {}", step, kind, spec.name));
      }
    }
    if (!lines.empty()) break;
  }
  return lines;
}

}  // namespace athanor
