// athanor bench moe measures router, experts and combine, forward and backward, as a share of the GEMM peak.

#include <fmt/core.h>

#include "base/core_entry.h"
#include "base/text.h"
#include "bench/arguments.h"
#include "bench/moe_block.h"
#include "bench/place.h"
#include "bench/report.h"
#include "ops/cpu_allocator.h"
#include "ops/device_choice.h"
#include "ops/tensor.h"

namespace athanor::bench {
namespace {

// The shapes are: large experts with few tokens each, small experts, many small experts, and tiny experts.
std::vector<MoeShape> default_shapes() {
  return {{4096, 2048, 1024, 64, 8},
          {1024, 2048, 1024, 64, 8},
          {2048, 512, 256, 64, 8},
          {512, 512, 256, 128, 8},
          {2048, 256, 128, 64, 8}};
}

std::vector<MoeShape> shapes_of(const BenchMoeArguments& given) {
  std::vector<MoeShape> shapes = default_shapes(), typed;
  if (given.any_shape) {
    ATHANOR_CHECK(given.topk <= given.experts, "--topk ({}) must be at most --experts ({})", given.topk, given.experts);
    shapes = {{given.tokens, given.hidden, given.ffn, given.experts, given.topk}};
  }
  for (const auto dtype : dtypes_of(given.dtype)) {
    for (MoeShape shape : shapes) {
      shape.dtype = dtype;
      typed.push_back(shape);
    }
  }
  return typed;
}

void measure(const MoeShape& shape, const BenchMoeArguments& given, at::Device device, Report& report) {
  const double free = free_memory(device);
  ATHANOR_CHECK(memory_bytes(shape) < free, "{} needs {} of memory and {} are free; choose fewer tokens or experts",
                shape.name(), format_bytes(memory_bytes(shape)), format_bytes(free));
  const MoeBlock block(shape, given.uniform, device);
  const std::string verified = block.verify();
  std::vector<Subject> subjects = {block.subject()};
  if (device.is_cpu())
    for (auto& yardstick : gemm_yardsticks(shape.dtype)) subjects.push_back(std::move(yardstick));
  const auto samples = measure_in_turns(subjects, given, device);

  const char* dtype = ops::type_name(shape.dtype);
  const Limit limit =
      device.is_cpu() ? gemm_limit(shape.dtype, subjects, samples, 1) : gemm_limit_of(shape.dtype, device);
  const nlohmann::json fields = with_device({{"tokens", shape.tokens},
                                             {"hidden", shape.hidden},
                                             {"ffn", shape.ffn},
                                             {"experts", shape.experts},
                                             {"topk", shape.topk},
                                             {"dtype", dtype},
                                             {"max_over_mean", block.max_over_mean()},
                                             {"threads", at::get_num_threads()}},
                                            device);
  report.begin(fmt::format("{}; fullest expert {:.2f} times the mean; {} {:.0f} GFLOP/s", shape.name(),
                           block.max_over_mean(), limit.what, limit.rate * 1e-9));
  for (size_t i = 0; i < subjects.size(); ++i) report.add(subjects[i], samples[i], fields, limit);
  report.say(verified);
}

}  // namespace
}  // namespace athanor::bench

ATHANOR_CORE_ENTRY(bench_moe) {
  using namespace athanor;
  const auto& given = *static_cast<const BenchMoeArguments*>(arguments);
  bench::set_up(given);
  const at::Device device = ops::choose_device(given.device, {}, "--device");
  ops::install_caching_cpu_allocator();  // as training does
  bench::Report report;
  for (const auto& shape : bench::shapes_of(given)) bench::measure(shape, given, device, report);
  report.write(given.json);
  return 0;
}
