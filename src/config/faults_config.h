#pragma once
// The configuration section for rehearsals: faults that a user puts into a run, to see what it does about them.

#include <cstdint>
#include <string>
#include <vector>

#include "config/fields.h"
#include "config/ranges.h"

namespace athanor::inline config {

/// What a rehearsed fault does.
enum class FaultKind {
  kException,
  kKill,
  kSegv,
  kStop,
  kHang,
  kNan,
  kScale,
  kNanWeight,
  kFlipWeight,
  kFlipMaster,
  kFlipMoment,
  kSlow,
  kWriteFails,
  kFullDisk,
  kTornCheckpoint
};
template <>
inline constexpr auto kWords<FaultKind> = words<FaultKind>({{"exception", FaultKind::kException},
                                                            {"kill", FaultKind::kKill},
                                                            {"segv", FaultKind::kSegv},
                                                            {"stop", FaultKind::kStop},
                                                            {"hang", FaultKind::kHang},
                                                            {"nan", FaultKind::kNan},
                                                            {"scale", FaultKind::kScale},
                                                            {"nan_weight", FaultKind::kNanWeight},
                                                            {"flip_weight", FaultKind::kFlipWeight},
                                                            {"flip_master", FaultKind::kFlipMaster},
                                                            {"flip_moment", FaultKind::kFlipMoment},
                                                            {"slow", FaultKind::kSlow},
                                                            {"write_fails", FaultKind::kWriteFails},
                                                            {"full_disk", FaultKind::kFullDisk},
                                                            {"torn_checkpoint", FaultKind::kTornCheckpoint}});

/// When it acts: a part of a step, with the name that the board has for it, or the start of the run.
enum class FaultPhase { kStart, kData, kForward, kBackward, kReduce, kUpdate, kGather, kSave, kValidate };
template <>
inline constexpr auto kWords<FaultPhase> = words<FaultPhase>({{"start", FaultPhase::kStart},
                                                              {"data", FaultPhase::kData},
                                                              {"forward", FaultPhase::kForward},
                                                              {"backward", FaultPhase::kBackward},
                                                              {"reduce", FaultPhase::kReduce},
                                                              {"update", FaultPhase::kUpdate},
                                                              {"gather", FaultPhase::kGather},
                                                              {"save", FaultPhase::kSave},
                                                              {"validate", FaultPhase::kValidate}});

struct FaultConfig {
  Choice<FaultKind> kind = FaultKind::kException;
  int64_t step = 1;
  int64_t steps = 1;
  int64_t rank = -1;
  std::string host;
  int64_t sequence = -1;
  Choice<FaultPhase> phase = FaultPhase::kForward;
  std::string place;
  int64_t microbatch = -1;
  double seconds = 1;

  void describe(Fields& f) {
    f.field("kind", kind,
            "exception, kill, segv or stop (signals to the process), hang (it computes forever), nan (a value of the "
            "tensor at `place`), scale (the tensor times 1000), nan_weight (a value of the weight `place`), "
            "flip_weight, flip_master or flip_moment "
            "(a bit at rest), slow (waits; a device computes for as long), write_fails or full_disk (one write, or "
            "all, of the step's checkpoint), "
            "torn_checkpoint (a file of it is cut off when it has been written)");
    f.field("step", step, "the step in which it acts, from 1", between(1, kMaxSteps));
    f.field("steps", steps, "the number of steps, from that one on, in which a host's fault, slow or full_disk acts",
            between(1, kMaxSteps));
    f.field("rank", rank, "the rank on which it acts, once in a run folder, whatever restarts; -1: see host, sequence",
            at_least(-1));
    f.field("host", host, "in place of rank: it acts on every rank of this host, each time: a bad node");
    f.field("sequence", sequence,
            "in place of rank: it acts wherever this sequence of the step's batch is computed, each time: bad data",
            at_least(-1));
    f.field("phase", phase,
            "when it acts: start (before the first step, whatever `step` is), data, forward, backward, reduce (before "
            "gradients are summed), update, gather (with several ranks), save or validate");
    f.field("place", place,
            "the tensor at which it acts, such as model.layers.3.mlp (docs/observers.md), or the weight whose value, "
            "master or moment it changes; \"\": the first one of the phase, for nan_weight the last norm of the rank, "
            "which each step uses");
    f.field("microbatch", microbatch, "the microbatch of the rank's step in which it acts, from 0; -1: the first",
            at_least(-1));
    f.field("seconds", seconds, "slow: how long it waits or computes at each place of the phase", between(0.0, 1e6));
  }
};

/// Checks for memory that changes, and for ranks and nodes that are slow.
struct IntegrityConfig {
  int64_t interval = 50;
  bool probe = true;

  void describe(Fields& f) {
    f.field("interval", interval,
            "steps from one whose weights and optimizer state are hashed, to find bits that have changed in memory, to "
            "the next; 0: none",
            at_least(0));
    f.field("probe", probe,
            "when a run of several ranks starts, measure products, memory, messages to neighbours and the disk, and "
            "name what is slow (0.1 s)");
  }
};

struct FaultsConfig {
  std::vector<FaultConfig> plan;

  void describe(Fields& f) {
    f.list("plan", plan,
           "Faults, each of which acts once or always, as it states. Refused unless ATHANOR_ALLOW_FAULTS=1.");
  }
};

}  // namespace athanor::inline config
