#include "bench/orthogonalize.h"

#include <fmt/core.h>

#include "bench/place.h"
#include "bench/verify.h"
#include "ops/newton_schulz.h"
#include "ops/tensor.h"

namespace athanor::bench {
namespace {

// Matrices of Mula-7B-A1B and Qwen3-30B-A3B; as many of each as a rank may have at once.
struct Shape {
  const char* what;
  int64_t batch, rows, columns;
};
constexpr Shape kShapes[] = {{"Mula-7B expert, gate or up", 8, 1024, 2048},
                             {"Qwen3-30B expert, gate or up", 8, 768, 2048},
                             {"Mula-7B query", 2, 2048, 2048},
                             {"Qwen3-30B query", 1, 4096, 2048}};

// What torch.optim.Muon does with each matrix (torch 2.13): mm, addmm, addmm, both triangles.
void as_torch_does(const Tensor& stack, const ops::NewtonSchulz& how) {
  const auto [a, b, c] = how.coefficients;
  for (int64_t i = 0; i < stack.size(0); ++i) {
    const bool turned = stack.size(1) > stack.size(2);
    Tensor x = stack[i].to(how.dtype);
    if (turned) x = x.t();
    x = x / x.norm().clamp_min(1e-7);
    for (int64_t step = 0; step < how.steps; ++step) {
      const Tensor gram = x.mm(x.t());
      x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a, 1);
    }
    stack[i].copy_(turned ? x.t() : x);
  }
}

// Five iterations bring the singular values of a wide random matrix near 1, if every product is right.
std::string verify(at::ScalarType dtype, at::Device device) {
  const Tensor stack = sent(at::randn({2, 64, 512}), device);
  ops::orthogonalize(stack, {.dtype = dtype});
  spoil_if_asked(stack);
  const Tensor singular = at::linalg_svdvals(sent(stack, at::kCPU).to(at::kDouble));
  const double least = singular.min().item<double>(), most = singular.max().item<double>();
  ATHANOR_CHECK_AS(Error, least > 0.6 && most < 1.3, "wrong, so not timed: singular values from {} to {}", least, most);
  return fmt::format("verified: singular values of random matrices from {:.2f} to {:.2f}", least, most);
}

void measure_shape(const Shape& shape, at::ScalarType dtype, const BenchOptimizerArguments& given, at::Device device,
                   Report& report) {
  const ops::NewtonSchulz how{.dtype = dtype};
  const Tensor stack = sent(at::randn({shape.batch, shape.rows, shape.columns}), device);
  const double flops =
      static_cast<double>(shape.batch) * ops::orthogonalize_flops(shape.rows, shape.columns, how.steps);
  std::vector<Subject> subjects = {
      simple_subject(fmt::format("muon, {}", shape.what), flops, [&] { ops::orthogonalize(stack, how); }),
      simple_subject("  as torch.optim.Muon", flops, [&] { as_torch_does(stack, how); })};
  if (device.is_cpu())
    for (auto& yardstick : gemm_yardsticks(dtype)) subjects.push_back(std::move(yardstick));
  const auto samples = measure_in_turns(subjects, given, device);
  const Limit limit = device.is_cpu() ? gemm_limit(dtype, subjects, samples, 2) : gemm_limit_of(dtype, device);
  const nlohmann::json fields = with_device({{"matrices", shape.batch},
                                             {"rows", shape.rows},
                                             {"columns", shape.columns},
                                             {"dtype", ops::type_name(dtype)},
                                             {"threads", at::get_num_threads()}},
                                            device);
  const double ratio = median(samples[1].total) / median(samples[0].total);
  report.add(subjects[0], samples[0], fields, limit, fmt::format("{:.2f} times as fast as torch.optim.Muon's", ratio));
  report.add(subjects[1], samples[1], fields, limit);
}

}  // namespace

void measure_orthogonalize(at::ScalarType dtype, const BenchOptimizerArguments& given, at::Device device,
                           Report& report) {
  report.begin(fmt::format("muon, five iterations, products in {}; one triangle of symmetric products counts",
                           ops::type_name(dtype)));
  const std::string verified = verify(dtype, device);
  for (const Shape& shape : kShapes) measure_shape(shape, dtype, given, device, report);
  report.say(verified);
}

}  // namespace athanor::bench
