// athanor bench optimizer compares AdamW with a plain copy, and the gradient norm with plain reading.

#include <fmt/core.h>

#include <cmath>

#include "base/core_entry.h"
#include "base/text.h"
#include "bench/arguments.h"
#include "bench/beside_adamw.h"
#include "bench/orthogonalize.h"
#include "bench/place.h"
#include "bench/report.h"
#include "bench/verify.h"
#include "ops/adamw.h"
#include "ops/device_choice.h"
#include "ops/sum_of_squares.h"
#include "ops/tensor.h"
#include "ops/transfer.h"
#include "optim/adamw.h"
#include "optim/gradient_norm.h"

namespace athanor::bench {
namespace {

// A parameter's state, its gradient (4 bytes) and its master (4; in bf16 as the weight and its lower half) are read and
// written.
double bytes_of_parameter(const OptimizerConfig& config) {
  return 2.0 * static_cast<double>(8 + declare_optimizer(config.name).bytes_per_element());
}

constexpr const char* kName = "weight";

std::vector<BucketEntry> one_parameter(int64_t size) { return {{kName, Replication::kDense, {size}, {0}, {size}}}; }

struct Setting {
  OptimizerConfig config;
  ParameterStore parameters;
  AdamW optimizer;
  Tensor scale, changed;  // on a device, where the update reads and writes them

  Setting(int64_t size, at::ScalarType dtype, at::Device device)
      : parameters(one_parameter(size), dtype, ParameterStore::Use::kTraining, {}, device),
        optimizer(config, parameters), scale(at::ones({1}, parameters.grad().options())),
        changed(at::zeros({1}, scale.options().dtype(at::kLong))) {}

  void apply(int64_t step, double lr) { optimizer.apply({step, lr, 1.0, {scale, changed}}); }
};

// On a device the norm stays there, as in a step.
Tensor norm_of(const Tensor& grad) { return ops::sum_of_squares(grad).sqrt(); }

// Computes the update by its formula, with the error that fp32 arithmetic may make.
Tracked expected_after(Tracked weight, const std::vector<Tensor>& grads, const OptimizerConfig& c, double lr) {
  using namespace ops::test;
  const auto constant = [](double x) { return rounded(exact(x), 2); };
  const double beta1 = c.betas[0], beta2 = c.betas[1];
  Tracked m = exact(at::zeros_like(weight.value)), v = m;
  double step = 0;
  for (const Tensor& grad : grads) {
    step += 1;
    const Tracked g = exact(grad);
    m = m + constant(1 - beta1) * (g - m);
    v = constant(beta2) * v + constant(1 - beta2) * g * g;
    const Tracked root = monotone(v, 1, [](const Tensor& x) { return x.clamp_min(0).sqrt(); });
    const Tracked below = root * reciprocal(constant(std::sqrt(1 - std::pow(beta2, step)))) + constant(c.eps);
    const Tracked move = constant(lr / (1 - std::pow(beta1, step))) * m * reciprocal(below);
    // Storing a master may move it by an ulp (kernels/master.h), which counts as two more roundings.
    weight = rounded(weight * constant(1 - lr * c.weight_decay) - move, 2);
  }
  return weight;
}

std::string verify(at::ScalarType dtype, int64_t size, at::Device device) {
  Setting s(size, dtype, device);
  constexpr double kRate = 1e-3;
  const Tensor start = at::randn({size}) * 0.02;
  s.parameters.fill_master(kName, [&](int64_t first, std::span<float> out) {
    std::copy_n(start.const_data_ptr<float>() + first, out.size(), out.data());
  });
  const Tensor before = s.parameters.master_copy(kName);
  const std::vector<Tensor> grads = {at::randn({size}), at::randn({size})};
  for (size_t i = 0; i < grads.size(); ++i) {
    s.parameters.weight(kName).grad.copy_(sent(grads[i], device));
    const double exact = grads[i].to(at::kDouble).norm().item<double>();
    const double off = std::abs(ops::fetch_item<double>(norm_of(s.parameters.grad())) - exact);
    ATHANOR_CHECK_AS(Error, off <= kernels::error_bound(exact, 0, size + 1),
                     "wrong, so not timed: the gradient norm is off by {} of {}", off, exact);
    s.apply(static_cast<int64_t>(i) + 1, kRate);
  }
  const Tensor after = s.parameters.master_copy(kName);
  spoil_if_asked(after);
  require_within(after, expected_after(ops::test::exact(before), grads, s.config, kRate), "AdamW, master");
  require_within(sent(s.parameters.weight(kName).value, at::kCPU),
                 ops::test::stored(ops::test::exact(s.parameters.master_copy(kName)), dtype), "AdamW, weight");
  return fmt::format("verified against fp64: two steps of {} parameters, and the gradient norm", size);
}

Subject adamw_subject(Setting& s) {
  const double bytes = bytes_of_parameter(s.config) * static_cast<double>(s.parameters.num_elements());
  return {"adamw", {{"", bytes}}, [&s](Laps& laps) {
            s.parameters.grad().fill_(1e-3f);  // the step before has set it to zero
            laps.skip();
            s.apply(1, 0.0);
            laps.end(0);
          }};
}

void measure(at::ScalarType dtype, const BenchOptimizerArguments& given, at::Device device, Report& report) {
  const double need = bytes_of_parameter({}) / 2 * static_cast<double>(given.parameters) + 3 * 268e6;
  const double free = free_memory(device);
  ATHANOR_CHECK(need < free, "--parameters ({}) needs {} of memory and {} are free", given.parameters,
                format_bytes(need), format_bytes(free));
  const std::string verified = verify(dtype, std::min<int64_t>(given.parameters, 100'003), device);
  Setting setting(given.parameters, dtype, device);
  constexpr int64_t kYardstickBytes = int64_t{1} << 28;  // far more than any cache
  const Tensor& grad = setting.parameters.grad();
  std::vector<Subject> subjects = copy_yardsticks(kYardstickBytes, device);
  subjects.push_back(adamw_subject(setting));
  subjects.push_back(read_yardstick(kYardstickBytes, device));
  subjects.push_back(
      simple_subject("gradient norm", 4.0 * static_cast<double>(given.parameters), [&] { norm_of(grad); }));
  const auto samples = measure_in_turns(subjects, given, device);

  const char* name = ops::type_name(dtype);
  const nlohmann::json fields =
      with_device({{"parameters", given.parameters}, {"dtype", name}, {"threads", at::get_num_threads()}}, device);
  const Limit copy{"copy, read + written", "bytes", best_rate(subjects, samples, 0, 2)};
  const Limit read{"plain reading", "bytes", best_rate(subjects, samples, 3, 1)};
  report.begin(fmt::format("optimizer, {} parameters, weights in {}", given.parameters, name));
  for (size_t i = 0; i < subjects.size(); ++i) report.add(subjects[i], samples[i], fields, i < 3 ? copy : read);
  report.say(verified);
}

}  // namespace
}  // namespace athanor::bench

ATHANOR_CORE_ENTRY(bench_optimizer) {
  using namespace athanor;
  const auto& given = *static_cast<const BenchOptimizerArguments*>(arguments);
  bench::set_up(given);
  const at::Device device = ops::choose_device(given.device, {}, "--device");
  bench::Report report;
  for (const auto dtype : bench::dtypes_of(given.dtype)) {
    if (given.name == "adamw") {
      bench::measure(dtype, given, device, report);
      continue;
    }
    bench::measure_beside_adamw(dtype, given, device, report);
    if (given.name == "muon") bench::measure_orthogonalize(dtype, given, device, report);
  }
  report.write(given.json);
  return 0;
}
