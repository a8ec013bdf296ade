#include "verify/compare.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "arch/inventory.h"
#include "config/families.h"
#include "config/run_config.h"
#include "verify/own_gradients.h"
#include "verify/parts.h"
#include "verify/second_backwards.h"
#include "verify/trace.h"

namespace athanor::inline verify {
namespace {

// If a gradient is the difference of terms that nearly cancel, its errors keep the size of the terms, so a bound must
// be relative to that size. CancellingSizes estimates it. Below, dX is the gradient of X, and x a token's input of the
// layer. P are the probabilities of attention, O is its output, and Q, K, V are the queries, keys and values.
//
// Attention. Backward of the softmax subtracts two numbers of the size of dP = dO · Vᵀ from each other. Take a token
// that sees only itself, or whose output reaches a loss only with a small coefficient: its gradients of queries and
// keys consist of nothing but the rounding of these numbers. With two tokens in a sequence, the last of which has no
// target, they are 600 times smaller than elsewhere, but their errors are not. dV = Pᵀ · dO is made from the same dO
// and does not cancel, so the sizes follow from it. A score's gradient has the size ‖dV‖ · rms(V). The gradients of the
// weights that make Q and K have the factor x in addition, as has that of the weights that make V. The key with which a
// query's score is computed has the size of a normed vector, or rms(K), divided by √head_dim. If the query was normed,
// its gradient is divided by rms(Q). The gradient of a norm's weight lacks the factor x, whose size is √hidden.
//
// Routers whose weights are scaled to sum to 1. A weight w is a share of its sum, so backward subtracts the mean of the
// chosen experts' gradients from each. Nothing is left if there is only one expert (k = 1), and little if one has
// nearly all of the weight. The term that cancels, for each token and expert, is w · ⟨dY, Y⟩. Y = W · H is the expert's
// output, W its down projection [D, F] and H its input of width F. dW is made from the same w · dY and from H, so the
// size of the term is ‖dW‖ · ‖W‖ / √(F · D). The gradient of the router's weight has the factor x in addition, √D.

// Estimates the sizes from the gradients of `one` (the reference's run) and from the parameters that both runs had
// before a step, which `layout` has recorded. `small`, `layout` and `one` must outlive this object.
class CancellingSizes {
 public:
  // @param kind  of the gradients, as WholeTrace::values takes it.
  CancellingSizes(const RunConfig& small, const WholeTrace& layout, const WholeTrace& one, std::string kind)
      : config_(small), model_(make_model_spec(small.model)), layout_(layout), one_(one), kind_(std::move(kind)) {}

  // Returns the Euclidean norm of the cancelling terms over the whole parameter; 0 if nothing is known to cancel.
  double size(const ParameterSpec& spec, int64_t step) const;

 private:
  double of_attention(const ParameterSpec& spec, int64_t step) const;
  double of_bias(const ParameterSpec& spec, int64_t step) const;
  double of_router(const ParameterSpec& spec, int64_t step) const;
  double projected_size(const LinearSpec& projection, int64_t step) const;

  const RunConfig& config_;
  ModelSpec model_;
  const WholeTrace &layout_, &one_;
  std::string kind_;
};

double whole_norm(const std::vector<float>& values) {
  return norm_of(values.data(), static_cast<int64_t>(values.size()));
}

double CancellingSizes::size(const ParameterSpec& spec, int64_t step) const {
  switch (spec.role) {
    case Role::kQuery:
    case Role::kKey:
    case Role::kQkNorm: return of_attention(spec, step);
    case Role::kBias: return of_bias(spec, step);
    case Role::kRouter: {  // nothing cancels in the gate of shared experts
      const bool routes = model_.layers.at(static_cast<size_t>(spec.layer)).sparse().router.weight() == spec.name;
      return routes && config_.model.norms_topk() ? of_router(spec, step) : 0;
    }
    default: return 0;
  }
}

double CancellingSizes::of_attention(const ParameterSpec& spec, int64_t step) const {
  const AttentionSpec& a = model_.layers.at(static_cast<size_t>(spec.layer)).attention;
  const double size = whole_norm(one_.values(step, kind_, a.value.weight())) * projected_size(a.value, step);
  if (spec.role == Role::kQkNorm) return size / std::sqrt(static_cast<double>(config_.model.hidden_size));
  const bool is_query = spec.role == Role::kQuery;
  if (a.qk_norm == QkNorm::kNone) return size * projected_size(is_query ? a.key : a.query, step);
  return size / projected_size(is_query ? a.query : a.key, step);
}

// The gradient of a key's bias is zero where the key is not turned: it moves all logits of a query alike. What cancels
// are the gradients of the keys. Their size is seen in the matrix, whose gradient is their products with tokens of
// about 1.
double CancellingSizes::of_bias(const ParameterSpec& spec, int64_t step) const {
  if (spec.layer < 0) return 0;
  const LayerSpec& layer = model_.layers.at(static_cast<size_t>(spec.layer));
  if (layer.is_sparse() && spec.name == layer.sparse().router.bias())  // the weight's without the factor x
    return config_.model.norms_topk() ? of_router(spec, step) / std::sqrt(static_cast<double>(layer.sparse().width))
                                      : 0;
  const AttentionSpec& a = layer.attention;
  if (spec.name != a.key.bias()) return 0;
  return whole_norm(one_.values(step, kind_, a.key.weight())) / std::sqrt(static_cast<double>(a.key.columns));
}

double CancellingSizes::of_router(const ParameterSpec& spec, int64_t step) const {
  const std::string& down = model_.layers.at(static_cast<size_t>(spec.layer)).sparse().down;
  const double one_expert =  // ‖W‖ of one expert
      whole_norm(layout_.values(step - 1, "master", down)) / std::sqrt(static_cast<double>(config_.model.num_experts));
  return whole_norm(one_.values(step, kind_, down)) * one_expert /
         std::sqrt(static_cast<double>(config_.model.expert_intermediate_size()));
}

// Returns the root mean square of a projection's output for tokens of about 1.
double CancellingSizes::projected_size(const LinearSpec& projection, int64_t step) const {
  const auto& weight = layout_.values(step - 1, "master", projection.weight());
  const double rows = static_cast<double>(weight.size()) / static_cast<double>(config_.model.hidden_size);
  return std::max(whole_norm(weight) / std::sqrt(std::max(1.0, rows)), 1e-30);
}

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
    const bool few = off <= 2 * kTokens && (off > 0 || (reads_choices(config_.moe.balance) && !b.chosen.empty()));
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
                           Reference reference, c10::Device device) {
  return Comparer(small, Noise(small, data_ranks, reference, device), layout, one).run();
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

CountDifference compare_expert_counts(const std::string& what, const std::vector<int64_t>& counts,
                                      const std::vector<int64_t>& expected, int64_t num_sparse_layers) {
  if (counts == expected) return {what, 0};
  if (counts.size() != expected.size()) return {what, 1};
  double off = 0, all = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    off += std::abs(static_cast<double>(counts[i] - expected[i]));
    all += static_cast<double>(expected[i]);
  }
  const auto first = static_cast<size_t>(std::ranges::mismatch(counts, expected).in1 - counts.begin()),
             width = counts.size() / static_cast<size_t>(num_sparse_layers);
  const std::string where =
      width > 1 ? fmt::format("layer {}, expert {}", first / width, first % width) : fmt::format("layer {}", first);
  return {fmt::format("{} (sparse {}: {} instead of {})", what, where, counts[first], expected[first]),
          off / std::max(all, 1.0)};
}

}  // namespace athanor::inline verify
