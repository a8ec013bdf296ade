#include "train/rehearsals.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "train/run_folder.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;
using Phase = Observation::Phase;

bool is_signal(const std::string& kind) { return kind == "kill" || kind == "segv" || kind == "stop"; }

int signal_of(const std::string& kind) { return kind == "kill" ? SIGKILL : kind == "segv" ? SIGSEGV : SIGSTOP; }

bool changes_memory(const std::string& kind) { return kind == "nan_weight" || kind.starts_with("flip_"); }

// A high bit of the exponent, or, of a part of a number, the highest one but two.
void flip_bit(const Tensor& element) {
  const Tensor bits = element.view(element.element_size() == 2 ? at::kShort : at::kInt);
  bits.bitwise_xor_(int64_t{1} << (element.element_size() * 8 - 3));
}

Tensor middle_of(const Tensor& values) { return values.view({-1}).select(0, values.numel() / 2); }

bool is_in(const std::string& phase, Phase observed) {
  return phase == "forward"    ? observed == Phase::kForward
         : phase == "backward" ? observed == Phase::kBackward
                               : observed == Phase::kReduce;
}

[[noreturn]] void hang() {
  volatile double x = 1;
  while (true) x = x * 1.0000001 + 1e-9;
}

std::string describe(const FaultConfig& fault) {
  const std::string where = !fault.host.empty()   ? "host " + fault.host
                            : fault.sequence >= 0 ? fmt::format("the rank that computes sequence {}", fault.sequence)
                                                  : fmt::format("rank {}", fault.rank);
  return fmt::format("{} in {} of step {} on {}", fault.kind, fault.phase, fault.step, where);
}

}  // namespace

void check_faults(const RunConfig& config, int world_size) {
  const FaultsConfig& faults = config.faults;
  if (faults.plan.empty()) return;
  const char* allowed = std::getenv("ATHANOR_ALLOW_FAULTS");
  ATHANOR_CHECK(
      allowed && allowed == std::string("1"),
      "[faults] plans {} fault(s), the first being {}: set ATHANOR_ALLOW_FAULTS=1 in the environment of every "
      "rank if this run shall fail on purpose, or delete the section",
      faults.plan.size(), describe(faults.plan.front()));
  for (const FaultConfig& fault : faults.plan) {
    const int targets = (fault.rank >= 0) + !fault.host.empty() + (fault.sequence >= 0);
    ATHANOR_CHECK(targets == 1, "[faults] {}: set one of rank, host and sequence", describe(fault));
    ATHANOR_CHECK(fault.rank < world_size, "[faults] {}: the job has {} rank(s)", describe(fault), world_size);
    ATHANOR_CHECK(fault.sequence < config.train.global_batch_size, "[faults] {}: a step has {} sequences, from 0",
                  describe(fault), config.train.global_batch_size);
    ATHANOR_CHECK(fault.step <= config.train.steps, "[faults] {}: the run has {} steps", describe(fault),
                  config.train.steps);
    ATHANOR_CHECK(fault.sequence < 0 || fault.phase != "reduce",
                  "[faults] {}: a bucket of gradients belongs to no sequence; take forward or backward",
                  describe(fault));
  }
}

Rehearsals::Rehearsals(const FaultsConfig& faults, TrainState& state, const RunContext& at)
    : faults_(faults), state_(state), at_(at) {
  for (const FaultConfig& fault : faults.plan)
    log::warn("THIS RUN WILL FAIL ON PURPOSE: [faults] plans {}", describe(fault));
}

void Rehearsals::begin_gradients() { acted_.clear(); }

bool Rehearsals::is_due(const FaultConfig& fault, const Observation& o) const {
  const int64_t step = at_.step;
  const bool lasts = !fault.host.empty() || fault.kind == "slow";
  if (step < fault.step || step >= fault.step + (lasts ? fault.steps : 1)) return false;
  const Mesh& mesh = state_.model.mesh;
  if (fault.rank >= 0 && fault.rank != mesh.rank()) return false;
  if (!fault.host.empty() && fault.host != mesh.world().host()) return false;
  if (fault.sequence >= 0) {
    const int64_t first = o.first_sequence;
    if (first < 0 || fault.sequence < first || fault.sequence >= first + state_.config.train.micro_batch_size)
      return false;
  }
  const bool names_tensor = !fault.place.empty() && !changes_memory(fault.kind);
  return is_in(fault.phase, o.phase) && (!names_tensor || fault.place == o.place) &&
         (fault.microbatch < 0 || fault.microbatch == o.microbatch);
}

// Whether the fault has not acted yet. A rank's fault acts once in the run folder, and leaves a file that tells so.
bool Rehearsals::may_act(size_t index) {
  const FaultConfig& fault = faults_.plan[index];
  if (fault.kind == "slow") return true;
  if (!acted_.insert(index).second) return false;
  if (fault.rank < 0) return true;
  const fs::path folder = RunFolder{state_.config.train.run_dir}.log() / "faults";
  fs::create_directories(folder);
  const int file = ::open((folder / std::to_string(index)).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (file < 0) return false;
  ::close(file);
  return true;
}

void Rehearsals::observe(const Observation& o) {
  for (size_t i = 0; i < faults_.plan.size(); ++i) {
    const FaultConfig& fault = faults_.plan[i];
    if (is_due(fault, o) && may_act(i)) act(fault, o);
  }
}

// The memory of `place`, or of the first parameter; of a moment, that of the first optimizer.
Tensor Rehearsals::memory_of(const FaultConfig& fault) const {
  const ParameterStore& parameters = state_.model.parameters;
  if (fault.kind == "flip_master" && parameters.master_low().defined()) return parameters.master_low();
  if (fault.kind == "flip_moment") return state_.optimizer.set.optimizers().front()->state().front().values;
  const auto& table = parameters.table();
  const bool is_named = std::ranges::find(table, fault.place, &BucketEntry::name) != table.end();
  return parameters.weight(is_named ? fault.place : table.front().name).value;
}

void Rehearsals::act(const FaultConfig& fault, const Observation& o) {
  const at::NoGradGuard no_grad;
  if (fault.kind == "slow") {
    std::this_thread::sleep_for(std::chrono::duration<double>(fault.seconds));
    return;
  }
  log::warn_on_all("rehearsal: {} begins, at {}", describe(fault), o.place);
  if (is_signal(fault.kind)) {
    std::raise(signal_of(fault.kind));
  } else if (changes_memory(fault.kind)) {
    const Tensor element = middle_of(memory_of(fault));
    if (fault.kind == "nan_weight")
      element.fill_(std::numeric_limits<double>::quiet_NaN());
    else
      flip_bit(element);
  } else if (fault.kind == "nan") {
    middle_of(o.tensor).fill_(std::numeric_limits<double>::quiet_NaN());
  } else if (fault.kind == "scale") {
    o.tensor.mul_(1000);
  } else if (fault.kind == "hang") {
    hang();
  } else {
    fail<Error>("a rehearsed exception ([faults]) at {}", std::string(o.place));
  }
}

}  // namespace athanor
