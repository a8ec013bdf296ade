#pragma once
// The configuration section for checkpoints: when they are written, where to and by whom, and from which one a run
// continues.

#include <cstdint>
#include <string>
#include <vector>

#include "config/fields.h"
#include "config/ranges.h"

namespace athanor::inline config {

/// How data that one rank has read reach the others: by a broadcast, or by an all-reduce to which the others add zeros.
/// The results are equal; machines differ in which of the two they have tuned.
enum class SharedBy { kBroadcast, kAllReduce };
template <>
inline constexpr auto kWords<SharedBy> = words<SharedBy>({{"broadcast", SharedBy::kBroadcast},
                                                          {"all_reduce", SharedBy::kAllReduce}});

/// What becomes of a checkpoint that is due while the one before is still being written.
enum class IfStillSaving { kWait, kSkip };
template <>
inline constexpr auto kWords<IfStillSaving> = words<IfStillSaving>({{"wait", IfStillSaving::kWait},
                                                                    {"skip", IfStillSaving::kSkip}});

/// Which of the data ranks that own the same shard write it into checkpoints: each its canonical part, or the first of
/// them all of these parts.
enum class Writers { kScattered, kFirst };
template <>
inline constexpr auto kWords<Writers> = words<Writers>({{"scattered", Writers::kScattered},
                                                        {"first", Writers::kFirst}});

struct CheckpointConfig {
  CountOrAuto interval = 500;
  double mtbf_hours = 0;
  double interval_minutes = 0;
  int64_t keep = 2;
  int64_t keep_every = 0;
  int64_t model_interval = 1000;
  std::string model_dtype = "bfloat16";
  std::string resume = "auto";
  Choice<SharedBy> load = SharedBy::kBroadcast;
  bool async = true;
  Choice<IfStillSaving> if_still_saving = IfStillSaving::kWait;
  double write_mb_s = 0;
  int64_t concurrent_writers = 0;
  std::string local_dir;
  int64_t local_interval = 0;
  Choice<Writers> writers = Writers::kScattered;
  bool fresh_moments = false;
  std::vector<std::string> fresh_groups = {};
  std::vector<std::string> allow_model_change;

  void describe(Fields& f) {
    f.field(
        "interval", interval,
        "steps between full checkpoints; 0 turns them off; auto: the run measures what a checkpoint costs, and takes "
        "the interval that loses the least time, given how often jobs of this size fail (mtbf_hours)",
        auto_or_at_least(0));
    f.field("mtbf_hours", mtbf_hours,
            "for interval auto: the mean time between failures of a node; 0: what events.jsonl of the run shows, or a "
            "published figure as long as it shows little",
            between(0.0, 1e9));
    f.field("interval_minutes", interval_minutes,
            "a full checkpoint is also written when this many minutes have passed since the last one; 0: never",
            between(0.0, 1e6));
    f.field("keep", keep, "the newest full checkpoints that are kept; older ones are removed",
            between(int64_t{1}, int64_t{1'000'000}));
    f.field("keep_every", keep_every, "full checkpoints of steps that are multiples of this are never removed; 0: none",
            at_least(0));
    f.field("model_interval", model_interval,
            "steps between model-only checkpoints, all kept, which transformers loads; 0, the default of a family that "
            "transformers has no class of, turns them off",
            at_least(0));
    f.field("model_dtype", model_dtype, "type of model-only checkpoints", one_type_of({"bfloat16", "float32"}));
    f.field("resume", resume,
            "auto: the newest checkpoint that verifies, or the newest model-only one if there is no full one; never: "
            "refuse a folder that contains a run; or the path of a full or model-only checkpoint: of another run to "
            "begin from it, or of this run to go back to it");
    f.field("load", load,
            "how the weights that one rank has read reach the ranks with the same parameters: by broadcast, or as a "
            "sum with the others' zeros");
    f.field(
        "async", async,
        "full checkpoints are copied in memory, and written from the copy while the run continues; false: each step "
        "that saves waits for the disk");
    f.field("if_still_saving", if_still_saving,
            "what becomes of a full checkpoint that falls due by its step while the one before is still being written: "
            "wait until that is written, or skip this one; with async");
    f.field("write_mb_s", write_mb_s,
            "most megabytes that the ranks of a node write each second for full checkpoints; 0: no limit; with async",
            between(0.0, 1e6));
    f.field("concurrent_writers", concurrent_writers,
            "ranks of the job that write a full checkpoint at the same time; 0: all of them; with async",
            between(int64_t{0}, int64_t{1'000'000}));
    f.field(
        "local_dir", local_dir,
        "folder of each node's memory or disk (\"/dev/shm\") for local checkpoints: every node keeps its ranks' part "
        "of a full checkpoint there, and a copy of another node's part; with local_interval");
    f.field("local_interval", local_interval,
            "steps between local checkpoints; a run that was killed continues from the newest whole one if it is newer "
            "than the full checkpoints in the run's folder; 0: none",
            at_least(0));
    f.field("writers", writers,
            "who writes what several data ranks hold identically: each of them a part (scattered), or the first of "
            "them all of it (first); the files' pieces are the same");
    f.field("fresh_moments", fresh_moments,
            "begin with zero moments, and count the optimizer's updates from there, if resume names a folder or a "
            "checkpoint lacks moments; a run that continues from its own checkpoints keeps its moments");
    f.field("fresh_groups", fresh_groups,
            "the same for some parameters, by role or pattern as in optimizer.groups[].match: their moments begin at "
            "zero and those of the others are read");
    f.field(
        "allow_model_change", allow_model_change,
        "fields of the model that may differ from those of the checkpoint or folder that it begins from (any of "
        "rope_theta, rope_scaling, max_position_embeddings, vocab_size); a larger vocab_size, or "
        "max_position_embeddings of gpt2, adds rows that are initialised as in a new model, and cannot be used with a "
        "full checkpoint",
        each_one_of({"rope_theta", "rope_scaling", "max_position_embeddings", "vocab_size"}));
  }
};

}  // namespace athanor::inline config
