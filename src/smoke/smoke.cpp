#include "smoke/smoke.h"

#include <fmt/ranges.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <set>

#include "arch/inventory.h"
#include "base/files.h"
#include "base/random.h"
#include "memory/preflight.h"
#include "model/initialize.h"
#include "ops/matmul_paths.h"
#include "smoke/smoke_tracer.h"
#include "train/optimizer_pieces.h"
#include "train/train_step.h"
#include "verify/parts.h"

namespace athanor::inline smoke {
namespace {

constexpr int64_t kSteps = 50, kSequences = 8, kSeqLen = 64, kVocab = 256;
constexpr int kThreads = 2;

RunConfig smoke_config(bool sparse, const char* dtype) {
  RunConfig config;
  config.model.family = sparse ? "olmoe" : "olmo";
  config.model.hidden_size = 128;
  config.model.num_hidden_layers = 2;
  config.model.num_attention_heads = 4;
  config.model.num_key_value_heads = 2;
  config.model.intermediate_size = sparse ? 64 : 256;
  config.model.num_experts = sparse ? 8 : 0;
  config.model.num_experts_per_tok = sparse ? 2 : 0;
  config.model.vocab_size = kVocab;
  config.data.seq_len = kSeqLen;
  config.data.attention_scope = sparse ? AttentionScope::kDocument : AttentionScope::kInstance;
  config.train.steps = kSteps;
  config.train.global_batch_size = kSequences;
  config.train.micro_batch_size = 4;
  config.train.dtype = dtype;
  config.train.loss_chunk_tokens = 100;
  config.optimizer.lr = 1e-2;
  config.optimizer.min_lr = 1e-3;
  config.optimizer.warmup_steps = 10;
  return config;
}

// A batch with something to learn: most tokens follow from the one before, one in eight is random; token 0 ends a
// document now and then.
Batch smoke_batch(int64_t step) {
  const CounterRandom random(1, "smoke");
  Batch batch{kSequences, kSeqLen, std::vector<int32_t>(kSequences * kSeqLen), {}};
  uint64_t previous = 1;
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    const uint64_t draw = random.u64(static_cast<uint64_t>(step) * batch.tokens.size() + i);
    previous = draw % 8 == 0 ? (draw >> 8) % kVocab : (previous * 5 + 17) % kVocab;
    batch.tokens[i] = static_cast<int32_t>(previous);
  }
  return batch;
}

// Names every parameter, or expert of one, for which `property` is false.
void check_each(const TrainState& state, const std::string& what,
                const std::function<bool(const ParameterSpec&, int64_t begin, int64_t end)>& property,
                std::vector<std::string>& findings) {
  for (const auto& spec : make_inventory(state.config.model)) {
    for_parts(spec, [&](const std::string& name, int64_t begin, int64_t end) {
      if (!property(spec, begin, end)) findings.push_back(fmt::format("{} {}", name, what));
    });
  }
}

struct SmokeModel {
  const char* name;
  bool sparse;
  const char* dtype;
};
constexpr SmokeModel kDense{"dense", false, "float32"}, kDenseBf16{"dense-bfloat16", false, "bfloat16"},
    kSparse{"sparse", true, "bfloat16"}, kSparseFp32{"sparse-float32", true, "float32"};

class Smoke {
 public:
  /// @param tracer  null: none.
  explicit Smoke(const SmokeModel& model, at::Device device = at::kCPU, SmokeTracer* tracer = nullptr)
      : state_(smoke_config(model.sparse, model.dtype), {}, {.device = device}), sparse_(model.sparse),
        tracer_(tracer) {
    run_.model = model.name;
    initialize_parameters(state_.config.model, 1, state_.model.parameters);
    for (const auto& spec : make_inventory(state_.config.model)) {
      initial_.emplace(spec.name, state_.model.parameters.master_copy(spec.name).view({-1}));
    }
    if (tracer_) tracer_->begin_model(run_.model, state_);
  }

  /// Takes steps from the first one on.
  std::vector<SmokeStep> steps(int64_t count) {
    for (int64_t step = 0; step < count && !(tracer_ && tracer_->has_all()); ++step) {
      const StepReport report = take(smoke_batch(step));
      const double loss = report.parts.mean_loss();
      run_.steps.push_back({loss, report.grad_norm});
      if (step == 0) check_first(report, loss);
    }
    return run_.steps;
  }

  SmokeRun run() {
    steps(kSteps);
    if (tracer_ && tracer_->has_all()) return std::move(run_);
    check_each(
        state_, "receives no gradient",
        [&](const auto& spec, int64_t begin, int64_t end) {
          const int64_t at = state_.model.parameters.entry(spec.name).flat_begin;
          bool found = false;
          for_each_owned_state(state_.optimizer.set, {at + begin, at + end},
                               [&](const Tensor& values) { found = found || any(values); });
          return found;
        },
        run_.findings);
    check_each(
        state_, "does not move",
        [&](const auto& spec, int64_t begin, int64_t end) {
          const Tensor now = state_.model.parameters.master_copy(spec.name).view({-1});
          return any((now - initial_.at(spec.name)).narrow(0, begin, end - begin));
        },
        run_.findings);
    if (!(run_.steps.back().loss < run_.steps.front().loss - 1)) {
      run_.findings.push_back(fmt::format("the loss went from {:.4f} to {:.4f}: it should fall by more than 1",
                                          run_.steps.front().loss, run_.steps.back().loss));
    }
    return std::move(run_);
  }

 private:
  StepReport take(const Batch& batch) {
    if (!tracer_) return train_step(state_, batch);
    tracer_->add_input(batch);
    Step step(state_, batch);
    if (step.second_backward()) step.learn_from_second();
    step.compute_gradients();
    tracer_->add_gradients(state_);
    step.update();
    StepReport report = step.finish();
    tracer_->add_update(state_, report);
    return report;
  }

  void check_first(const StepReport& report, double loss) {
    const double expected = expected_first_loss(state_.config.model);
    if (std::abs(loss - expected) > 0.2)
      run_.findings.push_back(fmt::format("the first loss is {:.4f}, expected {:.4f}", loss, expected));
    if (!sparse_) return;
    const double routed = static_cast<double>(kSequences * kSeqLen * state_.config.model.num_hidden_layers);
    const double entropy = report.parts.routers.entropy_sum.sum().item<double>() / routed,
                 full = std::log(static_cast<double>(state_.config.model.num_experts));
    if (entropy < 0.9 * full)
      run_.findings.push_back(
          fmt::format("the router's entropy starts at {:.4f}, expected near ln(experts) {:.4f}", entropy, full));
  }

  static bool any(const Tensor& x) { return x.count_nonzero().item<int64_t>() > 0; }

  TrainState state_;
  bool sparse_;
  SmokeTracer* tracer_;
  SmokeRun run_;
  std::map<std::string, Tensor> initial_;
};

}  // namespace

bool SmokeStep::operator==(const SmokeStep& other) const {
  return std::bit_cast<uint64_t>(loss) == std::bit_cast<uint64_t>(other.loss) &&
         std::bit_cast<uint64_t>(grad_norm) == std::bit_cast<uint64_t>(other.grad_norm);
}

bool on_widening_path() {
  const ops::MatmulPaths& paths = ops::matmul_paths();
  for (const auto path : {kernels::MatmulPath::kAvx2, kernels::MatmulPath::kAvx512}) {
    if (paths == ops::all_on(path)) return true;
  }
  return false;
}

namespace {

std::vector<SmokeModel> smoke_models(const SmokePlace& place) {
  if (!place.has_golden_files) return {kDense, kDenseBf16, kSparseFp32, kSparse};
  if (on_widening_path()) return {kDense, kSparse, kDenseBf16, kSparseFp32};
  return {kDense, kSparse};
}

void compare_with_second_run(SmokeRun& run, const SmokeModel& model, at::Device device) {
  constexpr int64_t kAgain = 10;
  const auto again = Smoke(model, device).steps(kAgain);
  const auto differs = std::ranges::mismatch(again, run.steps);
  if (differs.in1 != again.end())
    run.findings.push_back(fmt::format("step {} of a second run has other bits: loss {}, and {} in the first",
                                       differs.in1 - again.begin() + 1, differs.in1->loss, differs.in2->loss));
}

}  // namespace

std::vector<SmokeRun> run_smoke(const SmokePlace& place, SmokeTracer* tracer) {
  at::set_num_threads(kThreads);
  std::vector<SmokeRun> runs;
  for (const SmokeModel& model : smoke_models(place)) {
    if (tracer && !tracer->wants(model.name)) continue;
    runs.push_back(Smoke(model, place.device, tracer).run());
    if (!place.has_golden_files && !(tracer && tracer->has_all()))
      compare_with_second_run(runs.back(), model, place.device);
  }
  return runs;
}

namespace {

// Nothing if every product is made on the widest tiles of a CPU with bf16 instructions, else the paths:
// "-library", "-avx512+library".
std::string text_of_other_paths() {
  const ops::MatmulPaths& paths = ops::matmul_paths();
  if (paths == ops::all_on(kernels::MatmulPath::kAvx512Bf16)) return "";
  std::set<std::string> used;
  for (const auto& type : {paths.fp32, paths.bf16})
    for (const auto path : {type.dense, type.grouped, type.attention}) used.insert(kernels::name_of(path));
  return fmt::format("-{}", fmt::join(used, "+"));
}

}  // namespace

std::string libtorch_version() {
  return fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR, TORCH_VERSION_PATCH);
}

std::string machine_kind() {
  if (on_widening_path()) return fmt::format("x86_64-v3-widening-libtorch{}", libtorch_version());
  // The fields by which the libraries choose their code.
  const std::string cpu = read_file("/proc/cpuinfo");
  const auto has = [&](const char* flag) { return cpu.find(std::string(" ") + flag) != std::string::npos; };
  const char* vendor = cpu.find("GenuineIntel") != std::string::npos   ? "intel"
                       : cpu.find("AuthenticAMD") != std::string::npos ? "amd"
                                                                       : "other";
  const char* isa = has("amx_bf16")      ? "amx_bf16"
                    : has("avx512_bf16") ? "avx512_bf16"
                    : has("avx512f")     ? "avx512"
                    : has("avx2")        ? "avx2"
                                         : "base";
#if defined(__x86_64__)
  const char* arch = "x86_64";
#else
  const char* arch = "other";
#endif
  return fmt::format("{}-{}-{}{}-libtorch{}", arch, vendor, isa, text_of_other_paths(), libtorch_version());
}

}  // namespace athanor::inline smoke
