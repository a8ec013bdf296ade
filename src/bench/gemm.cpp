// athanor bench gemm compares one grouped matrix product over all experts with one product of the library for each
// expert.

#include <fmt/core.h>

#include "base/core_entry.h"
#include "base/text.h"
#include "bench/arguments.h"
#include "bench/place.h"
#include "bench/report.h"
#include "bench/verify.h"
#include "ops/cpu_allocator.h"
#include "ops/device/grouped.h"
#include "ops/device_choice.h"
#include "ops/grouped_matmul.h"
#include "ops/tensor.h"

namespace athanor::bench {
namespace {

/// L experts with M rows each, K inputs, N outputs.
struct GemmShape {
  int64_t experts, rows, k, n;
  at::ScalarType dtype = at::kBFloat16;

  const char* dtype_name() const { return ops::type_name(dtype); }
  double flops() const { return 2.0 * double(experts) * double(rows) * double(k) * double(n); }
  double memory_bytes() const {
    const double size = dtype == at::kFloat ? 4 : 2;
    return double(experts) * (double(k) * double(n) * (size + 4) + 2 * double(rows) * double(k + n) * size);
  }
  std::string name() const { return fmt::format("{} x {} rows, {} → {}, {}", experts, rows, k, n, dtype_name()); }
};

class Gemms {
 public:
  Gemms(const GemmShape& s, at::Device device)
      : shape_(s), device_(device), x_RK_(random({s.experts * s.rows, s.k})), dy_RN_(random({s.experts * s.rows, s.n})),
        w_LNK_(random({s.experts, s.n, s.k})), y_RN_(at::empty_like(dy_RN_)), dx_RK_(at::empty_like(x_RK_)),
        dw_LNK_(at::zeros({s.experts, s.n, s.k}, at::TensorOptions(at::kFloat).device(device))) {
    for (int64_t e = 0; e <= s.experts; ++e) offsets_.push_back(e * s.rows);
    groups_there_.emplace(sent(at::arange(s.experts + 1, at::kLong) * s.rows, device));
  }

  void forward() {
    if (device_.is_cpu()) return ops::grouped_matmul(offsets_, {{x_RK_, w_LNK_, true, y_RN_}});
    y_RN_ = ops::device::grouped_matmul(x_RK_, w_LNK_.transpose(1, 2), *groups_there_);
  }
  void input_gradient() {
    if (device_.is_cpu()) return ops::grouped_matmul(offsets_, {{dy_RN_, w_LNK_, false, dx_RK_}});
    dx_RK_ = ops::device::grouped_matmul(dy_RN_, w_LNK_, *groups_there_);
  }
  void weight_gradient() {
    if (device_.is_cpu()) return ops::grouped_outer_product(offsets_, {{dy_RN_, x_RK_, dw_LNK_}});
    ops::device::add_grouped_outer_product(dw_LNK_, dy_RN_, x_RK_, *groups_there_);
  }
  void library_forward() const {
    for (int64_t e = 0; e < shape_.experts; ++e) {
      Tensor y = y_RN_.narrow(0, e * shape_.rows, shape_.rows);
      at::mm_out(y, x_RK_.narrow(0, e * shape_.rows, shape_.rows), w_LNK_[e].t());
    }
  }

  // Compares some rows of the first and the last expert, and of their weight gradients.
  std::string verify() {
    dw_LNK_.zero_();
    forward();
    input_gradient();
    weight_gradient();
    const auto here = [](const Tensor& t) { return sent(t, at::kCPU); };
    const Tensor x_all = here(x_RK_), dy_all = here(dy_RN_), w_all = here(w_LNK_), y_all = here(y_RN_),
                 dx_all = here(dx_RK_), dw_all = here(dw_LNK_);
    spoil_if_asked(y_all);
    const auto exact = [](const Tensor& t) { return ops::test::exact(t); };
    const Tensor rows = spread_indices(shape_.rows, 8), outputs = spread_indices(shape_.n, 8);
    for (const int64_t e : {int64_t{0}, shape_.experts - 1}) {
      const Tensor at = rows + e * shape_.rows, w = w_all[e].to(at::kDouble);
      const Tensor x = x_all.narrow(0, e * shape_.rows, shape_.rows),
                   dy = dy_all.narrow(0, e * shape_.rows, shape_.rows);
      const auto check = [&](const Tensor& actual, const Tracked& expected, const char* what) {
        require_within(actual, ops::test::stored(expected, actual.scalar_type()),
                       fmt::format("{}, expert {}, {}", shape_.name(), e, what));
      };
      check(y_all.index_select(0, at), product(exact(x_all.index_select(0, at)), w.t()), "forward");
      check(dx_all.index_select(0, at), product(exact(dy_all.index_select(0, at)), w), "input gradient");
      const Tracked dy_some = exact(dy.index_select(1, outputs).t());
      const Tracked dw = product(dy_some, x.to(at::kDouble));
      // A library form may round the product to the compute type before it is added in fp32.
      require_within(dw_all[e].index_select(0, outputs), ops::test::stored(dw, shape_.dtype),
                     fmt::format("{}, expert {}, weight gradient", shape_.name(), e));
    }
    return fmt::format("verified against fp64: {} rows of the first and last expert, {} rows of their weight gradients",
                       rows.numel(), outputs.numel());
  }

 private:
  Tensor random(at::IntArrayRef shape) const {
    return at::empty(shape, at::TensorOptions(shape_.dtype).device(device_)).normal_(0, 1);
  }

  GemmShape shape_;
  at::Device device_;
  ops::GroupOffsets offsets_;
  std::optional<ops::device::Groups> groups_there_;
  Tensor x_RK_, dy_RN_, w_LNK_, y_RN_, dx_RK_, dw_LNK_;
};

void measure(const GemmShape& shape, const BenchGemmArguments& given, at::Device device, Report& report) {
  const double free = free_memory(device);
  ATHANOR_CHECK(shape.memory_bytes() < free, "{} needs {} of memory and {} are free; choose fewer experts or rows",
                shape.name(), format_bytes(shape.memory_bytes()), format_bytes(free));
  ATHANOR_CHECK(device.is_cpu() || shape.rows % ops::device::kGroupAlignment == 0,
                "--rows is {}; on a device it must be a multiple of {}", shape.rows, ops::device::kGroupAlignment);
  Gemms gemms(shape, device);
  const std::string verified = gemms.verify();
  std::vector<Subject> subjects = {
      simple_subject("grouped forward", shape.flops(), [&] { gemms.forward(); }),
      simple_subject("grouped input gradient", shape.flops(), [&] { gemms.input_gradient(); }),
      simple_subject("grouped weight gradient", shape.flops(), [&] { gemms.weight_gradient(); }),
      simple_subject("library, one by one", shape.flops(), [&] { gemms.library_forward(); })};
  if (device.is_cpu())
    for (auto& yardstick : gemm_yardsticks(shape.dtype)) subjects.push_back(std::move(yardstick));
  const auto samples = measure_in_turns(subjects, given, device);
  const Limit limit =
      device.is_cpu() ? gemm_limit(shape.dtype, subjects, samples, 4) : gemm_limit_of(shape.dtype, device);
  const nlohmann::json fields = with_device({{"experts", shape.experts},
                                             {"rows", shape.rows},
                                             {"k", shape.k},
                                             {"n", shape.n},
                                             {"dtype", shape.dtype_name()},
                                             {"threads", at::get_num_threads()}},
                                            device);
  report.begin(fmt::format("{}; {} {:.0f} GFLOP/s", shape.name(), limit.what, limit.rate * 1e-9));
  for (size_t i = 0; i < subjects.size(); ++i) report.add(subjects[i], samples[i], fields, limit);
  report.say(verified);
}

// Gate or up projections with the shapes of `athanor bench moe`, at the mean load.
std::vector<GemmShape> shapes_of(const BenchGemmArguments& given) {
  std::vector<GemmShape> shapes = {
      {64, 512, 2048, 1024}, {64, 128, 2048, 1024}, {64, 256, 512, 256}, {128, 32, 512, 256}, {64, 256, 256, 128}};
  if (given.any_shape) shapes = {{given.experts, given.rows, given.k, given.n}};
  std::vector<GemmShape> typed;
  for (const auto dtype : dtypes_of(given.dtype)) {
    for (GemmShape shape : shapes) {
      shape.dtype = dtype;
      typed.push_back(shape);
    }
  }
  return typed;
}

}  // namespace
}  // namespace athanor::bench

ATHANOR_CORE_ENTRY(bench_gemm) {
  using namespace athanor;
  const auto& given = *static_cast<const BenchGemmArguments*>(arguments);
  bench::set_up(given);
  const at::Device device = ops::choose_device(given.device, {}, "--device");
  ops::install_caching_cpu_allocator();  // as training does
  bench::Report report;
  for (const auto& shape : bench::shapes_of(given)) bench::measure(shape, given, device, report);
  report.write(given.json);
  return 0;
}
