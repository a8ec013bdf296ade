#pragma once
// What a step says of itself, and the three places that hear it: the terminal, metrics.jsonl, TensorBoard.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace athanor {

/// One layer's routing. A load is how many choices an expert took in the step.
struct RouterMetrics {
  double load_max_over_mean = 0;
  double load_p95_over_mean = 0;  ///< 95 of 100 experts have at most this
  int64_t dead_experts = 0;       ///< without a single token
  double reassigned_share = 0;    ///< of the choices, those that balancing gave to another expert
  double dropped_share = 0;       ///< of the choices, those that no expert took
  double entropy = 0;             ///< of the router's probabilities, mean over tokens, nats
};

/// Of gradients, over the ranks of a job.
struct RankNorms {
  std::vector<double> ranks;    ///< of what is each rank's alone; together they make the gradient norm
  std::vector<double> experts;  ///< of the experts of each expert rank; empty where all ranks hold all experts

  /// Largest by smallest; infinite where one is zero and another is not, 1 where there are none.
  static double imbalance(const std::vector<double>& norms);
};

/// Over the layers and the expert ranks.
struct TokensPerRank {
  double max = 0, mean = 0, min = 0;
};

/// What one communicator of one rank carried: bytes that it sent within its supernode and out of it.
struct GroupTraffic {
  int64_t calls = 0, bytes_inside = 0, bytes_outside = 0;
  double waited_s = 0;

  bool operator==(const GroupTraffic&) const = default;
};

/// One optimizer step. Losses are means by now; everything else is as its name and unit say.
struct StepMetrics {
  int64_t step = 0;     ///< 1-based: the number of updates so far
  int64_t attempt = 1;  ///< of the run: how often it has been started
  double loss = 0;      ///< cross entropy per target, nats; without the router losses
  double aux_loss =
      0;  ///< load-balancing loss, mean over layers and sequences; times its coefficient it is in the gradient
  double z_loss = 0;          ///< router z-loss, mean over layers and tokens
  double router_entropy = 0;  ///< mean over layers and tokens, nats
  double grad_norm = 0;       ///< before clipping
  double lr = 0;
  double changed_share = 0;            ///< of the weights, as forward reads them, that this update changed
  int64_t tokens = 0;                  ///< in this step
  int64_t tokens_seen = 0;             ///< since the start of the run
  double flops = 0;                    ///< of this step, forward and backward
  double gemm_peak_flops = 0;          ///< per second, of all ranks together; what MFU is a share of
  std::string gemm_peak_is;            ///< "bfloat16, our own product"
  int threads = 0;                     ///< that computed this step on rank 0
  std::optional<double> seconds_left;  ///< until the run is complete, by the steps since its start
  double step_s = 0, data_s = 0, forward_s = 0, backward_s = 0, optimizer_s = 0;
  double forward_comm_s = 0, backward_comm_s = 0;     ///< of them: waiting for other ranks; the rest is computation
  uint64_t memory_bytes = 0, peak_memory_bytes = 0;   ///< resident now, and at most so far
  std::vector<RouterMetrics> routers;                 ///< of each layer with experts; empty for dense models
  std::optional<RankNorms> rank_norms;                ///< where there are several ranks, as what follows
  std::optional<TokensPerRank> tokens_per_dest_rank;  ///< of a layer's tokens, those with a choice on an expert rank
  std::map<std::string, GroupTraffic> traffic;        ///< of rank 0 in this step, by communicator
  std::optional<double> validation_loss;
  std::string stage;                                ///< where the run has several
  std::map<std::string, int64_t> tokens_drawn;      ///< from each source since the start, where there are several
  std::map<std::string, double> validation_losses;  ///< of each source, where there are several

  double tokens_per_second() const { return step_s > 0 ? static_cast<double>(tokens) / step_s : 0; }
  double flops_per_second() const { return step_s > 0 ? flops / step_s : 0; }
  double forward_compute_s() const { return forward_s - forward_comm_s; }
  double backward_compute_s() const { return backward_s - backward_comm_s; }
  double mfu() const { return gemm_peak_flops > 0 ? flops_per_second() / gemm_peak_flops : 0; }
};

/// `step: 10  loss: 10.8213  grad_norm: 2.5495  lr: 4.00e-05  tps: 11,636  tflops: 202.78  mfu: 20.50%  memory: 7.33GiB
/// eta: 4:12`
/// on one line; the last where it is known.
std::string format_step_line(const StepMetrics& metrics);

/// One JSON object, without a newline.
std::string to_json_line(const StepMetrics& metrics);

}  // namespace athanor
