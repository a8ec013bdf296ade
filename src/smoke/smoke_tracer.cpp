#include "smoke/smoke_tracer.h"

#include <algorithm>

#include "arch/inventory.h"
#include "base/build_info.h"
#include "base/hash.h"
#include "base/process.h"
#include "base/text.h"
#include "ops/matmul_paths.h"
#include "smoke/smoke.h"

namespace athanor::inline smoke {
namespace {

const char* traced_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return "float32";
    case at::kDouble: return "float64";
    case at::kBFloat16: return "bfloat16";
    case at::kInt: return "int32";
    case at::kLong: return "int64";
    default: return c10::toString(type);
  }
}

std::string traced_shape(const Tensor& tensor) {
  std::vector<std::string> sizes;
  for (const int64_t size : tensor.sizes()) sizes.push_back(std::to_string(size));
  return sizes.empty() ? "1" : join(sizes, "x");
}

// The names of parameters in the order of forward.
std::vector<std::string> parameter_names(const TrainState& state) {
  std::vector<std::string> names;
  for (const auto& spec : make_inventory(state.config.model)) names.push_back(spec.name);
  return names;
}

// "float32 avx512, bfloat16 dense library grouped library attention avx512".
std::string products_text() {
  std::vector<std::string> types;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto& of = ops::matmul_paths().of(type);
    const bool one = of.dense == of.grouped && of.dense == of.attention;
    types.push_back(std::string(traced_type(type)) +
                    (one ? fmt::format(" {}", kernels::name_of(of.dense))
                         : fmt::format(" dense {} grouped {} attention {}", kernels::name_of(of.dense),
                                       kernels::name_of(of.grouped), kernels::name_of(of.attention))));
  }
  return join(types);
}

}  // namespace

// Keeps copies of what a step shows: the step may overwrite its tensors, and waits for no device.
class SmokeTracer::Watcher : public Observer {
 public:
  struct Seen {
    std::string phase, name;
    Tensor tensor;
  };

  void observe(const Observation& o) override {
    const bool is_forward = o.phase == Observation::Phase::kForward;
    if (!is_forward && o.phase != Observation::Phase::kBackward) return;
    seen.push_back({fmt::format("{}.{}", phase_name(o.phase), o.microbatch), std::string(o.place),
                    o.tensor.detach().clone(at::MemoryFormat::Contiguous)});
  }

  std::vector<Seen> seen;
};

SmokeTracer::SmokeTracer(std::optional<TracedPlace> only)
    : only_(std::move(only)), watcher_(std::make_shared<Watcher>()) {}

SmokeTracer::~SmokeTracer() = default;

void SmokeTracer::add(const std::string& phase, const std::string& name, const Tensor& tensor) {
  if (only_) {
    if (only_->step != step_) return;
    met_.push_back(phase + ":" + name);
    if (only_->phase != phase || only_->name != name) return;
  }
  const Tensor here = tensor.detach().cpu().contiguous();
  trace_.models.back().tensors.push_back({step_, phase, name, traced_shape(here), traced_type(here.scalar_type()),
                                          hash_hex(here.const_data_ptr(), here.nbytes())});
  if (!only_) return;
  const Tensor wide = here.to(at::kDouble).contiguous();
  trace_.values.assign(wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel());
}

void SmokeTracer::add_watched() {
  for (const auto& [phase, name, tensor] : watcher_->seen) add(phase, name, tensor);
  watcher_->seen.clear();
}

void SmokeTracer::begin_model(const std::string& name, TrainState& state) {
  state.observers.add(watcher_);
  trace_.models.push_back({name, {}});
  step_ = 0;
  has_enough_ = false;
  for (const auto& parameter : parameter_names(state))
    add("initial", parameter, state.model.parameters.master_copy(parameter));
  last_step_ = 0;
}

void SmokeTracer::add_input(const Batch& batch) {
  ++step_;
  add("input", "tokens",
      at::tensor(at::ArrayRef<int32_t>(batch.tokens), at::kInt).view({batch.num_sequences, batch.seq_len}));
}

void SmokeTracer::add_gradients(const TrainState& state) {
  add_watched();
  before_gradients_ = trace_.models.back().tensors.size();
  // Backward makes the gradients of the last parameters first.
  auto names = parameter_names(state);
  std::ranges::reverse(names);
  for (const auto& name : names) {
    const BucketEntry& entry = state.model.parameters.entry(name);
    add("gradient", name,
        state.model.parameters.grad().narrow(0, entry.flat_begin, entry.num_elements()).view(entry.extent));
  }
}

void SmokeTracer::add_update(const TrainState& state, const StepReport& report) {
  auto& tensors = trace_.models.back().tensors;
  const auto number = [](double value) { return at::scalar_tensor(value, at::kDouble); };
  // A device has told its numbers only now, but the loss was computed before the gradients.
  const size_t after_gradients = tensors.size();
  add("loss", "sum", number(report.parts.loss_sum));
  std::rotate(tensors.begin() + static_cast<ptrdiff_t>(before_gradients_),
              tensors.begin() + static_cast<ptrdiff_t>(after_gradients), tensors.end());
  add("norm", "gradients", number(report.grad_norm));
  for (const auto& name : parameter_names(state)) add("update", name, state.model.parameters.master_copy(name));
  last_step_ = step_;
  has_enough_ = is_enough_ && is_enough_(trace_.models.back());
}

SmokeTrace SmokeTracer::take(at::Device device) {
  if (only_) {
    ATHANOR_CHECK(std::ranges::count(models_, only_->model),
                  "--trace-tensor {}: there is no model {} here{}; `athanor smoke --trace FILE` lists all",
                  printable(only_->text()), printable(only_->model), did_you_mean(only_->model, models_));
    ATHANOR_CHECK(!met_.empty(), "--trace-tensor {}: there is no step {}; expected one from 0 to {}",
                  printable(only_->text()), only_->step, last_step_);
    const std::string wanted = only_->phase + ":" + only_->name;
    ATHANOR_CHECK(trace_.num_tensors() == 1,
                  "--trace-tensor {}: step {} has no such tensor{}; `athanor smoke --trace FILE` lists all",
                  printable(only_->text()), only_->step, did_you_mean(wanted, met_));
  }
  const BuildInfo& build = build_info();
  trace_.facts = {{"version", build.version},       {"commit", build.commit},   {"compiler", build.compiler},
                  {"libtorch", libtorch_version()}, {"processor", cpu_model()}, {"device", device.str()},
                  {"products", products_text()}};
  return std::move(trace_);
}

}  // namespace athanor::inline smoke
