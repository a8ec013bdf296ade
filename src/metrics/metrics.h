#pragma once
// The metrics of a training step, and the text forms for the terminal and for metrics.jsonl. (tensorboard.h writes the
// same metrics as events.)

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "metrics/layer_metrics.h"
#include "ops/device_memory.h"
#include "ops/transfer.h"
#include "optim/gradient_norm.h"
#include "optim/largest_logit.h"
#include "optim/noise_scale.h"
#include "record/evaluation_scores.h"
#include "train/rank_times.h"
#include "train/update_metrics.h"

namespace athanor::inline metrics {

/// The routing of one layer in one step. The load of an expert is the number of choices that it took in the step.
struct RouterMetrics {
  double load_max_over_mean = 0;
  double load_p95_over_mean = 0;  ///< 95 of 100 experts have at most this load
  int64_t dead_experts = 0;       ///< experts that got no token
  double reassigned_share = 0;    ///< share of all choices that balancing moved to another expert
  double dropped_share = 0;       ///< share of all choices that no expert took
  double entropy = 0;             ///< entropy of the router's probabilities: mean over tokens, in nats
};

/// Number of tokens of which an expert rank took a choice, in one layer and step: maximum, mean and minimum over the
/// layers and the expert ranks.
struct TokensPerRank {
  double max = 0, mean = 0, min = 0;
};

/// The traffic of one communicator of one rank: calls, bytes that the rank sent within its supernode and out of it, and
/// seconds that it waited.
struct GroupTraffic {
  int64_t calls = 0, bytes_inside = 0, bytes_outside = 0;
  double waited_s = 0;

  bool operator==(const GroupTraffic&) const = default;
};

/// The metrics of one optimizer step. Losses and counts are those of the whole batch; times (in seconds), memory,
/// traffic and threads are those of rank 0.
struct StepMetrics {
  int64_t step = 0;     ///< number of this update in the run, from 1
  int64_t attempt = 1;  ///< number of this start of the run, from 1
  double loss = 0;      ///< cross entropy per target in nats, without the router losses
  /// load-balancing loss, mean over layers and sequences; the gradient contains it times its coefficient
  double aux_loss = 0;
  double z_loss = 0;                          ///< router z-loss, mean over layers and tokens
  double router_entropy = 0;                  ///< mean over layers and tokens, nats
  double grad_norm = 0;                       ///< before clipping
  double lr = 0;                              ///< before the lr_scale of a parameter group
  double changed_share = 0;                   ///< share of the weights, as forward reads them, that this update changed
  std::optional<double> clipped_share;        ///< share of the elements that Sophia-G updates whose step was clipped
  std::optional<LargestLogit> largest_logit;  ///< with optimizer.qk_clip
  int64_t sequences = 0;                      ///< in this step
  int64_t tokens = 0;                         ///< in this step
  int64_t tokens_seen = 0;                    ///< since the start of the run
  double flops = 0;                           ///< work of this step, forward and backward
  double executed_flops = 0;                  ///< with what backward computes again
  double gemm_peak_flops = 0;                 ///< FLOP per second of all ranks together; the denominator of MFU
  std::string gemm_peak_is;                   ///< what gave the peak: "bfloat16, our own product"
  int threads = 0;                            ///< threads that computed this step
  std::optional<double> seconds_left;         ///< until the run is complete, estimated from the steps of this attempt
  double step_s = 0;                          ///< the whole step, without validation and saves
  double data_s = 0;                          ///< the part of it that waited for the batch
  double forward_s = 0, backward_s = 0, optimizer_s = 0;
  /// the parts of forward_s and backward_s that were waits for other ranks; the rest is computation
  double forward_comm_s = 0, backward_comm_s = 0;
  double watch_s = 0;  ///< the part of step_s that looked for wrong numbers, without waits for other ranks
  std::optional<double> reduced_in_backward;          ///< ReductionTrace::share of this rank
  uint64_t memory_bytes = 0, peak_memory_bytes = 0;   ///< resident memory now, and its maximum so far
  std::optional<NoiseEstimate> noise;                 ///< only in steps that measure it (optim/noise_scale.h)
  double noise_scale = 0;                             ///< in sequences, from the means over such steps; NaN: not known
  std::optional<UpdateMetrics> updates;               ///< only in the steps of metrics.update_watch_interval
  std::vector<RouterMetrics> routers;                 ///< one for each layer with experts; empty for dense models
  std::optional<RankNorms> rank_norms;                ///< only if there are several ranks
  std::optional<RankTimes> rank_times;                ///< only if there are several ranks, and not in each step
  std::optional<TokensPerRank> tokens_per_dest_rank;  ///< only if there are several expert ranks
  /// traffic since the step before, by communicator; empty if there is one rank
  std::map<std::string, GroupTraffic> traffic;
  std::optional<ops::TransferCounts> transfers;    ///< copies and waits of a step on a device
  std::optional<ops::DeviceMemory> device_memory;  ///< after a step on a device, with the peak of this step
  std::optional<double> validation_loss;  ///< mean of the sources', by their shares; only after steps that validate
  std::string stage;                      ///< name of the training phase, if the run has several
  /// tokens drawn from each source since the start of the run, if there are several
  std::map<std::string, int64_t> tokens_drawn;
  std::optional<LayerMetrics> layers;               ///< only in the steps of metrics.layer_statistics
  std::map<std::string, double> validation_losses;  ///< validation loss of each source, if there are several
  EvaluationScores evaluation;                      ///< only after steps that evaluate

  double tokens_per_second() const { return step_s > 0 ? static_cast<double>(tokens) / step_s : 0; }
  double flops_per_second() const { return step_s > 0 ? flops / step_s : 0; }
  double executed_flops_per_second() const { return step_s > 0 ? executed_flops / step_s : 0; }
  double forward_compute_s() const { return forward_s - forward_comm_s; }
  double backward_compute_s() const { return backward_s - backward_comm_s; }
  double mfu() const { return gemm_peak_flops > 0 ? flops_per_second() / gemm_peak_flops : 0; }
};

/// Returns one line for the terminal:
/// `step: 10  loss: 10.8213  grad_norm: 2.5495  lr: 4.00e-05  tps: 11,636  tflops: 202.78  mfu: 20.50%  memory: 7.33GiB
/// eta: 4:12`
/// (here on two lines). It ends with the remaining time (eta) if that is known.
std::string format_step_line(const StepMetrics& metrics);

/// The version of the fields of metrics.jsonl (docs/metrics.schema.json), which readers of other programs know. It
/// changes if the meaning or the unit of a field does; fields may be added within a version.
inline constexpr int kMetricsSchema = 1;

/// Returns the metrics as one JSON object, without a newline.
std::string to_json_line(const StepMetrics& metrics);

}  // namespace athanor::inline metrics
