#include "verify/portable/portable_run.h"

#include <algorithm>
#include <cmath>

#include "arch/inventory.h"
#include "arch/width_scaling.h"
#include "base/random.h"
#include "verify/portable/portable_model.h"
#include "verify/second_backwards.h"
#include "verify/small_model.h"

namespace athanor::inline verify {
namespace {

using portable::Losses;
using portable::Parameters;

constexpr int64_t kEndOfDocument = 0;  // as in make_verify_batch

// Returns normal numbers by (seed, name, element) in fp32; norms are 1 and biases 0; each times its factor.
Parameters initial_parameters(const RunConfig& config) {
  Parameters parameters;
  for (const ParameterSpec& spec : make_inventory(config.model)) {
    const double factor = initial_factor(spec.width, width_ratio(config.optimizer, config.model));
    Tensor values = at::full(spec.shape, spec.initial == Initial::kZero ? 0 : factor, at::kFloat);
    if (spec.initial == Initial::kNormal) {
      const CounterRandom random(static_cast<uint64_t>(config.train.seed), spec.name);
      random.fill_normal(values.data_ptr<float>(), 0, static_cast<uint64_t>(values.numel()),
                         config.model.initializer_range * spec.deviation * factor);
    }
    parameters.emplace(spec.name, values.to(at::kDouble).requires_grad_());
  }
  return parameters;
}

class PortableRun {
 public:
  PortableRun(const RunConfig& config, uint64_t draw, const WholeTrace& layout)
      : config_(config), draw_(draw), layout_(layout), parameters_(initial_parameters(config)) {
    const ModelConfig& m = config.model;
    if (!m.is_moe()) return;
    const double even = static_cast<double>(m.num_experts_per_tok) / static_cast<double>(m.num_experts);
    memory_.previous_share = at::full({m.num_sparse_layers(), m.num_experts}, even, at::kDouble);
    if (config.moe.bias_update_rate > 0) memory_.bias = at::zeros_like(memory_.previous_share);
  }

  Trace run() {
    for (const auto& [name, weight] : parameters_) add_tensor(0, "master/" + name, weight.detach());
    for (int64_t step = 1; step <= std::min(config_.train.steps, layout_.num_steps()); ++step) {
      follow_layout(step);
      if (has_second_backward(config_, step)) run_second_backward(step);
      const StepNumbers numbers = forward_backward(step);
      for (const auto& [name, weight] : parameters_)
        add_tensor(step, std::string(kGradKind) + "/" + name, gradient_of(weight));
      learn_from_choices(numbers);
      trace_.add_step(numbers);
    }
    return std::move(trace_);
  }

 private:
  void follow_layout(int64_t step) {
    for (auto& [name, weight] : parameters_) {
      const auto& values = layout_.values(step - 1, "master", name);
      const Tensor held = static_cast<int64_t>(values.size()) == weight.numel()
                              ? at::tensor(at::ArrayRef<float>(values), at::kFloat).view(weight.sizes())
                              : at::zeros(weight.sizes(), at::kFloat);  // a parameter that no rank holds is reported as
                                                                        // such
      weight = held.to(at::kDouble).requires_grad_();
    }
  }

  Tensor tokens_of(int64_t step) const {
    const Batch batch = make_verify_batch(config_, step, draw_);
    return at::tensor(at::ArrayRef<int32_t>(batch.tokens), at::kInt)
        .to(at::kLong)
        .view({batch.num_sequences, batch.seq_len});
  }

  // Calls visit(first sequence, number) microbatch by microbatch; balance groups stay whole.
  template <class Visit>
  void for_each_microbatch(Visit visit) const {
    const int64_t sequences = config_.train.global_batch_size;
    const int64_t micro = std::max(config_.train.micro_batch_size,
                                   config_.moe.balance == Balance::kNone ? int64_t{1} : config_.moe.balance_group);
    for (int64_t first = 0; first < sequences; first += micro) visit(first, std::min(micro, sequences - first));
  }

  StepNumbers forward_backward(int64_t step) {
    const Tensor tokens = tokens_of(step);
    const auto sequences = static_cast<double>(tokens.size(0)), length = static_cast<double>(tokens.size(1)),
               layers = static_cast<double>(std::max<int64_t>(1, config_.model.num_sparse_layers()));
    StepNumbers numbers;
    numbers.lr = config_.optimizer.lr;
    for_each_microbatch([&](int64_t first, int64_t count) {
      const Losses losses = portable::run_decoder(config_, parameters_, memory_, tokens.narrow(0, first, count),
                                                  kEndOfDocument, first, step);
      Tensor objective = losses.loss_sum / (sequences * (length - 1));
      if (!losses.routers.empty()) {
        objective = objective + losses.aux_sum * (config_.moe.router_aux_loss_coef / (layers * sequences)) +
                    losses.z_sum * (config_.moe.router_z_loss_coef / (layers * sequences * length));
      }
      objective.backward();
      add(losses, numbers);
    });
    numbers.loss /= static_cast<double>(numbers.targets);
    double squares = 0;
    for (const auto& [name, weight] : parameters_) {
      if (weight.grad().defined()) squares += weight.grad().square().sum().item<double>();
    }
    numbers.grad_norm = std::sqrt(squares);
    return numbers;
  }

  // The mean loss on the labels that the layout drew; what is drawn here is recorded.
  void run_second_backward(int64_t step) {
    const Tensor tokens = tokens_of(step), drawn = at::full_like(tokens, -1),
                 given = labels_in(layout_, config_, step).view(tokens.sizes()).clamp_min(0);
    const uint64_t key =
        CounterRandom(static_cast<uint64_t>(config_.train.seed), "drawn labels").u64(static_cast<uint64_t>(step));
    for_each_microbatch([&](int64_t first, int64_t count) {
      const portable::LabelsDrawn labels{key, given.narrow(0, first, count), drawn.narrow(0, first, count)};
      const Losses losses = portable::run_decoder(config_, parameters_, memory_, tokens.narrow(0, first, count),
                                                  kEndOfDocument, first, step, &labels);
      (losses.loss_sum / static_cast<double>(targets_in_step(config_))).backward();
    });
    add_tensor(step, std::string(kLabelKind) + "/" + kLabelName, drawn.reshape({-1}));
    for (auto& [name, weight] : parameters_) {
      add_tensor(step, std::string(kDrawnGradKind) + "/" + name, gradient_of(weight));
      weight.mutable_grad().reset();
    }
  }

  static void add(const Losses& losses, StepNumbers& numbers) {
    numbers.loss += losses.loss_sum.item<double>();
    numbers.targets += losses.num_targets;
    if (losses.routers.empty()) return;
    numbers.aux += losses.aux_sum.item<double>();
    numbers.z += losses.z_sum.item<double>();
    std::vector<int64_t> chosen, taken, moved, dropped;
    for (const portable::Routed& router : losses.routers) {
      chosen.insert(chosen.end(), router.chosen.begin(), router.chosen.end());
      taken.insert(taken.end(), router.taken.begin(), router.taken.end());
      moved.push_back(router.moved);
      dropped.push_back(router.dropped);
      numbers.entropy += router.entropy_sum;
    }
    const auto accumulate = [](std::vector<int64_t>& sum, const std::vector<int64_t>& part) {
      sum.resize(part.size());
      for (size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
    };
    accumulate(numbers.chosen, chosen), accumulate(numbers.taken, taken);
    accumulate(numbers.moved, moved), accumulate(numbers.dropped, dropped);
  }

  // Computes shares for moe.aux_scope "global", and a bias that rises for experts that were chosen less than the mean.
  void learn_from_choices(const StepNumbers& numbers) {
    if (numbers.chosen.empty()) return;
    const Tensor chosen = at::tensor(numbers.chosen, at::kLong).to(at::kDouble).view(memory_.previous_share.sizes());
    const auto tokens = static_cast<double>(config_.train.global_batch_size * config_.data.seq_len);
    memory_.previous_share = chosen / tokens;
    if (memory_.bias.defined())
      memory_.bias = memory_.bias + config_.moe.bias_update_rate * at::sign(chosen.mean(1, true) - chosen);
  }

  static Tensor gradient_of(const Tensor& weight) {
    return weight.grad().defined() ? weight.grad() : at::zeros_like(weight.detach());
  }

  void add_tensor(int64_t step, const std::string& name, const Tensor& values) {
    const Tensor rounded = values.to(at::kFloat).contiguous();
    trace_.add_pieces(step, {{name, whole_slice(values.sizes().vec()), rounded.const_data_ptr<float>()}});
  }

  const RunConfig& config_;
  uint64_t draw_;
  const WholeTrace& layout_;
  Parameters parameters_;
  portable::RouterMemory memory_;
  Trace trace_;
};

}  // namespace

Trace trace_portable_run(const RunConfig& config, uint64_t draw, const WholeTrace& layout) {
  return PortableRun(config, draw, layout).run();
}

}  // namespace athanor::inline verify
