// athanor bench step measures a whole training step on random tokens, and where its time goes.

#include <fmt/core.h>

#include <numeric>
#include <optional>

#include "arch/flops.h"
#include "arch/inventory.h"
#include "base/core_entry.h"
#include "base/fault_announcement.h"
#include "base/process.h"
#include "base/text.h"
#include "bench/arguments.h"
#include "bench/loss_check.h"
#include "bench/place.h"
#include "bench/random_batch.h"
#include "bench/recompute_cost.h"
#include "bench/report.h"
#include "bench/step_parts.h"
#include "config/precision.h"
#include "config/toml_reader.h"
#include "memory/preflight.h"
#include "model/initialize.h"
#include "ops/cpu_allocator.h"
#include "ops/device_choice.h"
#include "ops/device_traits.h"
#include "ops/launches.h"
#include "ops/tensor.h"
#include "ops/transfer.h"
#include "run/start.h"
#include "train/train_step.h"

namespace athanor::bench {
namespace {

Subject step_subject(TrainState& state, const Batch& batch) {
  const auto& c = state.config;
  const double flops = count_train_flops(c.model, c.train.global_batch_size, c.data.seq_len);
  // The head's gradient is computed with its loss, in forward (ops/linear_cross_entropy.h).
  const double head = 3 * count_forward_flops(c.model, c.train.global_batch_size, c.data.seq_len).output;
  const double forward = (flops - head) / 3 + head;
  const auto step = [&state, &batch] {
    const StepReport report = train_step(state, batch);
    ATHANOR_CHECK_AS(Error, report.verdict == Verdict::kApply, "step {} was refused: loss {}, gradient norm {}",
                     report.step, report.parts.loss_sum, report.grad_norm);
    return report;
  };
  // The host does not know when a device begins with a part of the step.
  if (!state.model.device().is_cpu()) return simple_subject("step", flops, step);
  return {"step", {{"forward", forward}, {"backward", flops - forward}, {"update", 0}}, [step](Laps& laps) {
            const StepReport report = step();
            laps.add(0, report.forward_s);
            laps.add(1, report.backward_s);
            laps.add(2, report.optimizer_s);
          }};
}

struct Memory {
  double peak_bytes, state_bytes;
  double device_bytes = 0;  // taken from a device, with what libtorch keeps for later tensors
};

// What a step makes a device do.
struct DeviceWork {
  std::optional<ops::DeviceKernels> kernels;
  ops::TransferCounts transfers;
};

DeviceWork count_device_work(TrainState& state, const Batch& batch) {
  const ops::TransferCounts before = ops::transfer_counts();
  ops::TransferCounts after;
  const auto kernels = ops::count_launches(state.model.device(), [&] {
    train_step(state, batch);
    after = ops::transfer_counts();
  });
  return {kernels, after - before};
}

double state_bytes(const TrainState& state) {
  const auto& p = state.model.parameters;
  auto bytes = static_cast<double>(state.optimizer.set.state_bytes());
  for (const at::Tensor& t : {p.grad(), p.compute(), p.master_low()}) {
    if (t.defined()) bytes += static_cast<double>(t.nbytes());
  }
  return bytes;
}

// Measures the step's own peak, before anything else takes memory.
Memory measure_memory(TrainState& state, const Batch& batch, double free_before) {
  for (int i = 0; i < 2; ++i) train_step(state, batch);
  const at::Device device = state.model.device();
  return {static_cast<double>(peak_resident_bytes()), state_bytes(state),
          device.is_cpu() ? 0 : free_before - free_memory(device)};
}

struct Limits {
  Limit gemm, copy, read;
  const Limit& of(Bound bound) const { return bound == Bound::kGemm ? gemm : bound == Bound::kCopy ? copy : read; }
};

Samples times(Samples samples, double calls) {
  const auto scale = [calls](std::vector<double>& values) {
    for (double& value : values) value *= calls;
  };
  scale(samples.total);
  for (auto& part : samples.parts) scale(part);
  return samples;
}

// The part of the step that the measured parts do not explain, round by round: copies between parts, routing losses,
// effects of caches.
Result rest_of(const Samples& step, const std::vector<Samples>& parts, const nlohmann::json& fields) {
  Result rest{"everything else", fields, step.total, 0, {}};
  for (const Samples& part : parts) {
    for (size_t r = 0; r < rest.seconds.size(); ++r) rest.seconds[r] -= part.total[r];
  }
  return rest;
}

nlohmann::json fields_of(const RunConfig& c, const Memory& memory, at::Device device, const DeviceWork& work) {
  nlohmann::json fields = {{"hidden", c.model.hidden_size},      {"layers", c.model.num_hidden_layers},
                           {"experts", c.model.num_experts},     {"topk", c.model.num_experts_per_tok},
                           {"vocabulary", c.model.vocab_size},   {"parameters", count_parameters(c.model)},
                           {"batch", c.train.global_batch_size}, {"micro_batch", c.train.micro_batch_size},
                           {"seq_len", c.data.seq_len},          {"dtype", c.train.dtype},
                           {"threads", at::get_num_threads()},   {"peak_bytes", memory.peak_bytes},
                           {"state_bytes", memory.state_bytes}};
  if (device.is_cpu()) return fields;
  fields["device_bytes"] = memory.device_bytes;
  if (work.kernels) {
    fields["launches"] = work.kernels->launches;
    for (const ops::KernelUse& each : work.kernels->longest)
      fields["kernels"].push_back({{"name", each.name}, {"launches", each.launches}, {"seconds", each.seconds}});
  }
  fields["device_waits"] = work.transfers.waits;
  fields["copies_to_device"] = work.transfers.copies_to_device;
  fields["copies_to_host"] = work.transfers.copies_to_host;
  return with_device(fields, device);
}

std::string describe_device_work(const DeviceWork& work) {
  return fmt::format("a step on the device: kernel launches {}, copies there {}, back {}, waits {}",
                     work.kernels ? std::to_string(work.kernels->launches) : "unknown (no CUPTI)",
                     work.transfers.copies_to_device, work.transfers.copies_to_host, work.transfers.waits);
}

void report_step(const RunConfig& c, const Memory& memory, const nlohmann::json& fields,
                 const std::vector<Subject>& subjects, const std::vector<Samples>& samples,
                 const std::vector<StepPart>& parts, const Limits& limits, Report& report) {
  const auto tokens = static_cast<double>(c.train.global_batch_size * c.data.seq_len);
  report.begin(fmt::format("step: {} parameters, {} x {} tokens, {}; GEMM peak {:.0f} GFLOP/s, copy {:.1f} GB/s",
                           format_thousands(static_cast<double>(count_parameters(c.model))), c.train.global_batch_size,
                           c.data.seq_len, c.train.dtype, limits.gemm.rate * 1e-9, limits.copy.rate * 1e-9));
  report.add(subjects[0], samples[0], fields, limits.gemm);
  const double step_s = median(samples[0].total);
  std::vector<Samples> scaled;
  for (size_t i = 0; i < parts.size(); ++i) {
    scaled.push_back(times(samples[i + 1], parts[i].calls));
    auto part_fields = fields;
    part_fields["calls"] = parts[i].calls;
    part_fields["step_share"] = median(scaled[i].total) / step_s;
    Subject subject = parts[i].subject;
    for (Part& part : subject.parts) part.work *= parts[i].calls;
    report.add(subject, scaled[i], part_fields, limits.of(parts[i].bound),
               fmt::format("{:4.1f}% of the step", 100 * median(scaled[i].total) / step_s));
  }
  Result rest = rest_of(samples[0], scaled, fields);
  rest.shape["step_share"] = rest.median_s() / step_s;
  rest.note = fmt::format("{:4.1f}% of the step", 100 * rest.median_s() / step_s);
  report.add(std::move(rest));
  report.say(fmt::format("{:.0f} tokens/s; peak memory {} ({} of weights, gradients and moments)", tokens / step_s,
                         format_bytes(memory.peak_bytes), format_bytes(memory.state_bytes)));
}

void measure(const RunConfig& config, const BenchStepArguments& given, at::Device device, Report& report) {
  const double free_before = free_memory(device);
  TrainState state(config, {}, {.device = device});
  initialize_parameters(config.model, static_cast<uint64_t>(config.train.seed), state.model.parameters);
  const Batch batch = random_batch(config);
  const std::string loss_verified =
      verify_loss(*state.model.chunks.front(), state.model.parameters,
                  sent(at::randint(config.model.vocab_size, {1, std::min<int64_t>(config.data.seq_len, 64)},
                                   at::TensorOptions(at::kLong)),
                       device));
  const Memory memory = measure_memory(state, batch, free_before);
  const DeviceWork work = device.is_cpu() ? DeviceWork{} : count_device_work(state, batch);
  const std::string parts_verified = verify_parts(config, device);

  const auto parts = step_parts(state);
  std::vector<Subject> subjects = {step_subject(state, batch)};
  for (const StepPart& part : parts) subjects.push_back(part.subject);
  const size_t yardsticks = subjects.size();
  const auto dtype = ops::scalar_type(precision_of(config).compute);
  if (device.is_cpu())
    for (auto& yardstick : gemm_yardsticks(dtype)) subjects.push_back(std::move(yardstick));
  const size_t of_memory = subjects.size();
  constexpr int64_t kYardstickBytes = int64_t{1} << 28;  // far more than any cache
  for (auto& yardstick : copy_yardsticks(kYardstickBytes, device)) subjects.push_back(std::move(yardstick));
  subjects.push_back(read_yardstick(kYardstickBytes, device));
  const auto samples = measure_in_turns(subjects, given, device);
  const Limits limits{device.is_cpu() ? gemm_limit(dtype, subjects, samples, yardsticks) : gemm_limit_of(dtype, device),
                      {"copy, read + written", "bytes", best_rate(subjects, samples, of_memory, 2)},
                      {"plain reading", "bytes", best_rate(subjects, samples, of_memory + 2, 1)}};
  const nlohmann::json fields = fields_of(config, memory, device, work);
  report_step(config, memory, fields, subjects, samples, parts, limits, report);
  if (!device.is_cpu()) report.say(describe_device_work(work));
  report.say(loss_verified);
  if (!parts_verified.empty()) report.say(parts_verified);
  if (given.recompute && !given.paced && device.is_cpu())
    report_recompute(state, batch, given, fields, limits.gemm, report);
}

}  // namespace
}  // namespace athanor::bench

ATHANOR_CORE_ENTRY(bench_step) {
  using namespace athanor;
  const auto& given = *static_cast<const BenchStepArguments*>(arguments);
  RunConfig config = load_run_config(given.config_file, given.overrides);
  config.train.batch_ramp.clear();  // most steps have train.global_batch_size
  take_seq_len_of_data(config);
  BenchArguments settings = given;
  if (settings.num_threads == 0) settings.num_threads = static_cast<int>(config.train.num_threads);
  bench::set_up(settings);
  require_layout_fits(config, 1);
  const OneRank alone(config);
  const at::Device device = ops::choose_device(config.train.device.word());
  choose_type(config.train, ops::traits_of(device).usual_type);
  check_memory(config, *alone.world, alone.mesh.layout(), device);
  announce_armed_faults();
  ops::install_caching_cpu_allocator();
  bench::Report report;
  bench::measure(config, given, device, report);
  report.write(given.json);
  return 0;
}
