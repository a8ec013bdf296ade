#include "watch/rehearsals.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <sstream>
#include <thread>

#include "arch/inventory.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/log.h"
#include "checkpoint/rotation.h"
#include "parallel/share.h"
#include "record/run_folder.h"

namespace athanor::inline watch {
namespace {

namespace fs = std::filesystem;
using Phase = Observation::Phase;

// What fails on a full disk.
constexpr std::array kWrites = {"checkpoint.piece", "export.block", "files.write", "append.write"};

bool changes_memory(FaultKind kind) {
  return kind == FaultKind::kNanWeight || kind == FaultKind::kFlipWeight || kind == FaultKind::kFlipMaster ||
         kind == FaultKind::kFlipMoment;
}

// A high bit of the exponent, or, of a part of a number, the highest one but two.
void flip_bit(const Tensor& element) {
  const Tensor bits = element.view(element.element_size() == 2 ? at::kShort : at::kInt);
  bits.bitwise_xor_(int64_t{1} << (element.element_size() * 8 - 3));
}

Tensor middle_of(const Tensor& values) { return values.view({-1}).select(0, values.numel() / 2); }

bool acts_on_disk(FaultKind kind) {
  return kind == FaultKind::kWriteFails || kind == FaultKind::kFullDisk || kind == FaultKind::kTornCheckpoint;
}

FaultPhase phase_of(const FaultConfig& fault) {
  if (acts_on_disk(fault.kind)) return FaultPhase::kSave;
  return fault.phase;
}

// Whether tensors are seen in the phase.
bool is_observed(FaultPhase phase) {
  return phase == FaultPhase::kForward || phase == FaultPhase::kBackward || phase == FaultPhase::kReduce;
}

// Whether it is part of what a rank computes in a step.
bool is_computed(FaultPhase phase) {
  return is_observed(phase) || phase == FaultPhase::kUpdate || phase == FaultPhase::kGather;
}

bool is_in(FaultPhase phase, Phase observed) {
  switch (phase) {
    case FaultPhase::kForward: return observed == Phase::kForward;
    case FaultPhase::kBackward: return observed == Phase::kBackward;
    case FaultPhase::kReduce: return observed == Phase::kReduce;
    default: return false;
  }
}

[[noreturn]] void hang() {
  volatile double x = 1;
  while (true) x = x * 1.0000001 + 1e-9;
}

std::string describe(const FaultConfig& fault) {
  const std::string where = !fault.host.empty()   ? "host " + fault.host
                            : fault.sequence >= 0 ? fmt::format("the rank that computes sequence {}", fault.sequence)
                                                  : fmt::format("rank {}", fault.rank);
  const FaultPhase phase = phase_of(fault);
  return phase == FaultPhase::kStart
             ? fmt::format("{} at the start on {}", fault.kind.word(), where)
             : fmt::format("{} in {} of step {} on {}", fault.kind.word(), word_of(phase), fault.step, where);
}

// The weight that `place` names; "" if it names none, or the fault acts on something else.
std::string weight_of(const FaultConfig& fault) { return changes_memory(fault.kind) ? fault.place : ""; }

// A weight that each step uses: the row of an embedding is used only if its token occurs.
const BucketEntry& last_norm(const std::vector<BucketEntry>& table) {
  const BucketEntry* last = &table.front();
  for (const BucketEntry& entry : table)
    if (entry.role == Role::kNorm && (last->role != Role::kNorm || entry.forward_index > last->forward_index))
      last = &entry;
  return *last;
}

// Why a fault has not acted in its step.
std::string why_not(const FaultConfig& fault) {
  if (acts_on_disk(fault.kind)) return "the step had no full checkpoint";
  if (!is_observed(fault.phase)) return "the step had no such phase";
  const std::string microbatch =
      fault.microbatch < 0 ? "" : fmt::format(" in microbatch {}, numbered from 0 on each rank", fault.microbatch);
  if (!weight_of(fault).empty())
    return fmt::format("the rank does not hold {}, or saw nothing{}", fault.place, microbatch);
  const std::string name = fault.place.empty() || changes_memory(fault.kind) ? "" : " with the name " + fault.place;
  return fmt::format("the rank saw no tensor{} there{} (docs/observers.md)", name, microbatch);
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
    ATHANOR_CHECK(fault.sequence < 0 || fault.phase != FaultPhase::kReduce,
                  "[faults] {}: a bucket of gradients belongs to no sequence; take forward or backward",
                  describe(fault));
    const FaultPhase phase = phase_of(fault);
    ATHANOR_CHECK(fault.sequence < 0 || is_observed(phase),
                  "[faults] {}: a sequence is computed in forward and backward only", describe(fault));
    ATHANOR_CHECK((fault.kind != FaultKind::kNan && fault.kind != FaultKind::kScale) || is_observed(phase),
                  "[faults] {}: no tensor is seen there; take forward, backward or reduce", describe(fault));
    const std::string weight = weight_of(fault);
    const auto has_its_name = [&](const ParameterSpec& each) { return each.name == weight; };
    ATHANOR_CHECK(weight.empty() || std::ranges::any_of(make_inventory(config.model), has_its_name),
                  "[faults] {}: the model has no weight {}; its names are those of transformers, with the experts of a "
                  "layer stacked, such as model.layers.0.mlp.experts.gate_proj.weight",
                  describe(fault), weight);
  }
}

Rehearsals::Rehearsals(const FaultsConfig& faults, TrainState& state, RunContext& at)
    : faults_(faults), state_(state), at_(at) {
  const auto& hosts = state.model.mesh.world().hosts();
  for (const FaultConfig& fault : faults.plan) {
    log::warn("THIS RUN WILL FAIL ON PURPOSE: [faults] plans {}", describe(fault));
    // No error: a spare node may have taken the place of the one that is played as bad.
    if (!fault.host.empty() && std::ranges::find(hosts, fault.host) == hosts.end())
      log::warn_on_all("rehearsal: {} does not act: no rank of this attempt is on that host", describe(fault));
  }
  at.phases.watcher = this;
  const at::Device device = state.model.device();
  const auto slows_device = [&](const FaultConfig& fault) {
    return fault.kind == FaultKind::kSlow && is_computed(fault.phase) && is_here(fault);
  };
  if (std::ranges::any_of(faults.plan, slows_device)) delay_ = ops::device::Delay::on(device);
}

Rehearsals::~Rehearsals() {
  at_.phases.watcher = nullptr;
  try {
    tear_checkpoints();  // that of the last step
  } catch (const std::exception& error) {
    log::warn_on_all("rehearsal: {}", error.what());
  }
}

void Rehearsals::begin_gradients() { acted_.clear(); }

bool Rehearsals::is_here(const FaultConfig& fault) const {
  const Mesh& mesh = state_.model.mesh;
  return fault.host.empty() ? fault.rank < 0 || fault.rank == mesh.rank() : fault.host == mesh.world().host();
}

bool Rehearsals::is_time(const FaultConfig& fault) const {
  const bool lasts = !fault.host.empty() || fault.kind == FaultKind::kSlow || fault.kind == FaultKind::kFullDisk;
  return at_.step >= fault.step && at_.step < fault.step + (lasts ? fault.steps : 1);
}

// Whether this rank computes what the fault belongs to: the rank's or the host's step, or the sequence in it.
bool Rehearsals::is_in_its_step(const FaultConfig& fault, const Observation& o) const {
  if (!is_time(fault) || !is_here(fault)) return false;
  const int64_t first = o.first_sequence;
  return fault.sequence < 0 ||
         (first >= 0 && fault.sequence >= first && fault.sequence < first + state_.config.train.micro_batch_size);
}

bool Rehearsals::is_its_tensor(const FaultConfig& fault, const Observation& o) const {
  if (!weight_of(fault).empty() && !memory_of(fault).defined()) return false;
  const bool names_tensor = !fault.place.empty() && !changes_memory(fault.kind);
  return is_in(phase_of(fault), o.phase) && (!names_tensor || fault.place == o.place) &&
         (fault.microbatch < 0 || fault.microbatch == o.microbatch);
}

// Whether the fault has not acted yet. A rank's fault acts once in the run folder, and leaves a file that tells so.
bool Rehearsals::may_act(size_t index) {
  const FaultConfig& fault = faults_.plan[index];
  if (fault.kind == FaultKind::kSlow) return played_.insert(index), true;
  if (!acted_.insert(index).second) return false;
  if (fault.rank < 0) return played_.insert(index), true;
  const fs::path folder = RunFolder{state_.config.train.run_dir}.log() / "faults";
  fs::create_directories(folder);
  const int file = ::open((folder / std::to_string(index)).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
  if (file >= 0 || errno == EEXIST) played_.insert(index);
  if (file < 0) return false;
  ::close(file);
  return true;
}

void Rehearsals::observe(const Observation& o) {
  for (size_t i = 0; i < faults_.plan.size(); ++i) {
    const FaultConfig& fault = faults_.plan[i];
    if (!is_in_its_step(fault, o)) continue;
    due_.insert(i);
    if (is_its_tensor(fault, o) && may_act(i)) act(fault, std::string(o.place), o.tensor);
  }
}

void Rehearsals::begins(board::Phase phase) {
  const std::string name = board::phase_name(static_cast<uint32_t>(phase));
  if (phase == board::Phase::kData) acted_.clear();
  tear_checkpoints();
  for (size_t i = 0; i < faults_.plan.size(); ++i) {
    const FaultConfig& fault = faults_.plan[i];
    if (fault.kind == FaultKind::kFullDisk && !is_time(fault))
      for (const char* point : kWrites) disarm_fault(point);
    const FaultPhase planned = phase_of(fault);
    if (phase == board::Phase::kData && fault.sequence < 0 && is_time(fault) && is_here(fault)) due_.insert(i);
    if (word_of(planned) != name || is_observed(planned) || fault.kind == FaultKind::kTornCheckpoint || !is_here(fault))
      continue;
    if (changes_memory(fault.kind) && !memory_of(fault).defined()) continue;
    if ((planned == FaultPhase::kStart || is_time(fault)) && may_act(i)) act(fault, "the begin of this phase", {});
  }
}

void Rehearsals::tell_what_did_not_act() {
  tear_checkpoints();  // that of the last step
  std::string own;
  for (const size_t i : due_)
    if (!played_.contains(i))
      own += fmt::format("rehearsal: {} did not act: {}\n", describe(faults_.plan[i]), why_not(faults_.plan[i]));
  std::set<std::string> told;
  for (const std::string& text : gather_texts(state_.model.mesh.host_group(GroupKind::kWorld), own)) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (told.insert(line).second) log::warn("{}", line);  // a host has many ranks
  }
}

// Cuts off the largest file of a checkpoint that is complete, as a disk does that lost its power.
void Rehearsals::tear_checkpoints() {
  for (size_t i = 0; i < faults_.plan.size(); ++i) {
    const FaultConfig& fault = faults_.plan[i];
    if (fault.kind != FaultKind::kTornCheckpoint || !is_here(fault) || at_.step < fault.step) continue;
    const fs::path folder = RunFolder{state_.config.train.run_dir}.checkpoints() / step_folder_name(fault.step);
    std::error_code failed;
    if (!fs::exists(folder / "manifest.json", failed) || !may_act(i)) continue;
    fs::path largest = folder / "manifest.json";
    for (const auto& entry : fs::directory_iterator(folder, failed))
      if (entry.is_regular_file() && entry.file_size() > fs::file_size(largest)) largest = entry.path();
    log::warn_on_all("rehearsal: {} begins, at {}", describe(fault), largest.string());
    fs::resize_file(largest, fs::file_size(largest) / 2, failed);
  }
}

// The memory of `place`, undefined if this rank has none of it. Without a place, NaN comes into a weight that each step
// uses, and a bit flips in the first one, or anywhere in the state.
Tensor Rehearsals::memory_of(const FaultConfig& fault) const {
  const ParameterStore& parameters = state_.model.parameters;
  const auto& table = parameters.table();
  const std::string weight = weight_of(fault);
  if (!weight.empty() && std::ranges::find(table, weight, &BucketEntry::name) == table.end()) return {};
  if (fault.kind == FaultKind::kFlipMoment ||
      (fault.kind == FaultKind::kFlipMaster && parameters.master_low().defined()))
    return state_of(fault);
  if (!weight.empty()) return parameters.weight(weight).value;
  return parameters.weight((fault.kind == FaultKind::kNanWeight ? last_norm(table) : table.front()).name).value;
}

// The lower bits of the master, or the first moment, of the elements that this rank owns.
Tensor Rehearsals::state_of(const FaultConfig& fault) const {
  const ParameterStore& parameters = state_.model.parameters;
  const auto& optimizers = state_.optimizer.set.optimizers();
  const bool of_master = fault.kind == FaultKind::kFlipMaster;
  if (fault.place.empty()) return of_master ? parameters.master_low() : optimizers.front()->state().front().values;
  const FlatRange range = parameters.entry(fault.place).range();
  Tensor part;
  const auto take = [&](const Tensor& state, FlatRange owned, int64_t index) {
    if (!part.defined()) part = state.narrow(0, index, owned.size());
  };
  if (of_master) {
    parameters.for_each_owned(range, [&](FlatRange owned, int64_t i) { take(parameters.master_low(), owned, i); });
    return part;
  }
  for (const auto& optimizer : optimizers)
    optimizer->parameters().for_each_owned(
        range, [&](const auto&, FlatRange owned, int64_t i) { take(optimizer->state().front().values, owned, i); });
  return part;
}

void Rehearsals::act(const FaultConfig& fault, const std::string& place, const Tensor& tensor) {
  const at::NoGradGuard no_grad;
  if (fault.kind == FaultKind::kSlow) {
    if (delay_ && is_computed(fault.phase)) return delay_->queue(fault.seconds);
    return std::this_thread::sleep_for(std::chrono::duration<double>(fault.seconds));
  }
  log::warn_on_all("rehearsal: {} begins, at {}", describe(fault), place);
  switch (fault.kind) {
    case FaultKind::kException:
    case FaultKind::kSlow:
    case FaultKind::kTornCheckpoint: break;
    case FaultKind::kKill: std::raise(SIGKILL); return;
    case FaultKind::kSegv: std::raise(SIGSEGV); return;
    case FaultKind::kStop: std::raise(SIGSTOP); return;
    case FaultKind::kHang: hang();
    case FaultKind::kNan: middle_of(tensor).fill_(std::numeric_limits<double>::quiet_NaN()); return;
    case FaultKind::kScale: tensor.mul_(1000); return;
    case FaultKind::kNanWeight: middle_of(memory_of(fault)).fill_(std::numeric_limits<double>::quiet_NaN()); return;
    case FaultKind::kFlipWeight:
    case FaultKind::kFlipMaster:
    case FaultKind::kFlipMoment: flip_bit(middle_of(memory_of(fault))); return;
    case FaultKind::kWriteFails: arm_fault("checkpoint.piece:eio"); return;
    case FaultKind::kFullDisk:
      for (const char* point : kWrites) arm_fault(std::string(point) + ":enospc@1+");
      return;
  }
  fail<Error>("a rehearsed exception ([faults]) at {}", place);
}

}  // namespace athanor::inline watch
