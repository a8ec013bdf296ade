#include "metrics/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "base/text.h"
#include "base/wall_clock.h"

namespace athanor::inline metrics {
namespace {

// The NaN that processors make is negative; scripts look for "nan".
double unsigned_nan(double value) { return std::isnan(value) ? NAN : value; }

// A line does not grow with the number of ranks.
nlohmann::ordered_json extremes(const std::vector<double>& values, const char* name) {
  const auto [least, most] = std::ranges::minmax_element(values);
  const auto at = [&](auto where) -> nlohmann::ordered_json {
    return {{"rank", where - values.begin()}, {name, *where}};
  };
  return {{"least", at(least)}, {"most", at(most)}};
}

void add_norms(const StepMetrics& m, nlohmann::ordered_json& line) {
  const auto& [ranks, experts] = *m.rank_norms;
  if (ranks.size() <= RankNorms::kMostListed) line["rank_grad_norms"] = ranks;
  if (ranks.size() > RankNorms::kMostListed) line["rank_grad_norm_extremes"] = extremes(ranks, "norm");
  line["rank_grad_norm_imbalance"] = RankNorms::imbalance(ranks);
  if (experts.empty()) return;
  if (experts.size() <= RankNorms::kMostListed) line["expert_grad_norms"] = experts;
  if (experts.size() > RankNorms::kMostListed) line["expert_grad_norm_extremes"] = extremes(experts, "norm");
  line["expert_grad_norm_imbalance"] = RankNorms::imbalance(experts);
}

// Six digits: fp32 sums have no more, and lines of deep models stay short.
double six_digits(double value) {
  return std::isfinite(value) ? std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr) : value;
}

nlohmann::ordered_json time_extremes(std::vector<double> seconds) {
  const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
  for (double& each : seconds) each = six_digits(each);
  auto found = extremes(seconds, "s");
  found["mean"] = six_digits(mean);
  return found;
}

void add_times(const RankTimes& times, nlohmann::ordered_json& line) {
  const size_t ranks = times.of[0].size();
  if (ranks <= RankNorms::kMostListed) {
    auto& listed = line["rank_times"];
    for (size_t part = 0; part < kNumTimeParts; ++part)
      for (const double seconds : times.of[part]) listed[kTimePartNames[part]].push_back(six_digits(seconds));
    return;
  }
  auto& shown = line["rank_time_extremes"];
  std::vector<double> compute(ranks), comm(ranks);
  for (size_t part = 0; part < kNumTimeParts; ++part) {
    const std::string_view name = kTimePartNames[part];
    shown[name] = time_extremes(times.of[part]);
    for (size_t rank = 0; rank < ranks; ++rank) {
      if (name.ends_with("_compute")) compute[rank] += times.of[part][rank];
      if (name.ends_with("_comm")) comm[rank] += times.of[part][rank];
    }
  }
  shown["compute"] = time_extremes(compute);
  shown["comm"] = time_extremes(comm);
}

void add_ranks(const StepMetrics& m, nlohmann::ordered_json& line) {
  if (m.rank_norms) add_norms(m, line);
  if (m.rank_times) add_times(*m.rank_times, line);
  if (m.tokens_per_dest_rank) {
    const auto& tokens = *m.tokens_per_dest_rank;
    line["tokens_per_dest_rank"] = {{"max", tokens.max}, {"mean", tokens.mean}, {"min", tokens.min}};
  }
  for (const auto& [name, group] : m.traffic) {
    line["communication"][name] = {{"calls", group.calls},
                                   {"bytes_inside", group.bytes_inside},
                                   {"bytes_outside", group.bytes_outside},
                                   {"waited_s", group.waited_s}};
  }
}

void add_updates(const StepMetrics& m, nlohmann::ordered_json& line) {
  if (!m.updates) return;
  const auto list = [](const std::vector<LargestOf>& largest, const char* name) {
    auto listed = nlohmann::ordered_json::array();
    for (const auto& [parameter, value] : largest)
      listed.push_back({{"parameter", parameter}, {name, six_digits(value)}});
    return listed;
  };
  line["lost_updates"] = list(m.updates->lost, "share");
  line["still_weights"] = list(m.updates->still, "share");
  line["underflown_moments"] = list(m.updates->underflow, "share");
  line["not_finite_state"] = list(m.updates->not_finite, "elements");
  line["orthogonality"] = list(m.updates->orthogonality, "norm");
}

void add_layers(const StepMetrics& m, nlohmann::ordered_json& line) {
  if (!m.layers) return;
  const auto& layers = *m.layers;
  const auto rounded = [](auto begin, auto end) {
    auto list = nlohmann::ordered_json::array();
    for (; begin != end; ++begin) list.push_back(six_digits(*begin));
    return list;
  };
  // The first row is the embedding, the last one the output.
  const auto list_of = [&](const std::vector<double>& rows) { return rounded(rows.begin() + 1, rows.end() - 1); };
  line["embedding_grad_norm"] = six_digits(layers.grad_norm.front());
  line["layer_grad_norm"] = list_of(layers.grad_norm);
  line["output_grad_norm"] = six_digits(layers.grad_norm.back());
  line["embedding_weight_norm"] = six_digits(layers.weight_norm.front());
  line["layer_weight_norm"] = list_of(layers.weight_norm);
  line["output_weight_norm"] = six_digits(layers.weight_norm.back());
  line["embedding_update_norm"] = six_digits(layers.update_norm.front());
  line["layer_update_norm"] = list_of(layers.update_norm);
  line["output_update_norm"] = six_digits(layers.update_norm.back());
  line["layer_activation_rms"] = rounded(layers.activation_rms.begin(), layers.activation_rms.end());
  line["layer_attention_logit_max"] = rounded(layers.attention_logit_max.begin(), layers.attention_logit_max.end());
}

}  // namespace

std::string format_step_line(const StepMetrics& m) {
  std::string line =
      fmt::format("step: {}  loss: {:.4f}  grad_norm: {:.4f}  lr: {:.2e}  tps: {}  tflops: {}  mfu: {}%  memory: {}",
                  m.step, unsigned_nan(m.loss), unsigned_nan(m.grad_norm), m.lr,
                  format_thousands(m.tokens_per_second()), format_digits(m.flops_per_second() / 1e12),
                  format_digits(100 * m.mfu()), format_bytes(static_cast<double>(m.memory_bytes)));
  if (m.seconds_left) line += "  eta: " + format_duration(*m.seconds_left);
  return line;
}

std::string to_json_line(const StepMetrics& m) {
  nlohmann::ordered_json line;  // ordered, so that `head` on the file is easy to read; its NaN and infinity are printed
                                // as null
  line["schema"] = kMetricsSchema;
  line["step"] = m.step;
  line["loss"] = m.loss;
  if (m.validation_loss) line["validation_loss"] = *m.validation_loss;
  if (!m.validation_losses.empty()) line["validation_losses"] = m.validation_losses;
  if (!m.evaluation.empty()) line["evaluation"] = scores_to_json(m.evaluation);
  if (!m.stage.empty()) line["stage"] = m.stage;
  if (!m.tokens_drawn.empty()) line["tokens_drawn"] = m.tokens_drawn;
  line["aux_loss"] = m.aux_loss;
  line["z_loss"] = m.z_loss;
  line["router_entropy"] = m.router_entropy;
  line["grad_norm"] = m.grad_norm;
  line["lr"] = m.lr;
  line["changed_share"] = m.changed_share;
  if (m.clipped_share) line["clipped_share"] = *m.clipped_share;
  if (m.largest_logit) {
    line["attention_logit_max"] = six_digits(m.largest_logit->value);
    line["attention_logit_max_layer"] = m.largest_logit->layer;
    line["clipped_heads"] = m.largest_logit->clipped_heads;
  }
  if (m.noise) {
    line["noise_scale"] = six_digits(m.noise_scale);
    line["noise_gradient_squared"] = six_digits(m.noise->gradient_squared);
    line["noise_variance"] = six_digits(m.noise->variance);
  }
  add_updates(m, line);
  line["sequences"] = m.sequences;
  line["tokens"] = m.tokens;
  line["tokens_seen"] = m.tokens_seen;
  line["tps"] = m.tokens_per_second();
  line["tflops"] = m.flops_per_second() / 1e12;
  line["executed_tflops"] = m.executed_flops_per_second() / 1e12;
  line["mfu"] = m.mfu();
  line["gemm_peak_tflops"] = m.gemm_peak_flops / 1e12;
  line["gemm_peak_is"] = m.gemm_peak_is;
  line["threads"] = m.threads;
  if (m.seconds_left) line["seconds_left"] = *m.seconds_left;
  line["step_s"] = m.step_s;
  line["data_s"] = m.data_s;
  line["watch_s"] = m.watch_s;
  line["forward_s"] = m.forward_s;
  line["backward_s"] = m.backward_s;
  line["optimizer_s"] = m.optimizer_s;
  line["forward_compute_s"] = m.forward_compute_s();
  line["forward_comm_s"] = m.forward_comm_s;
  line["backward_compute_s"] = m.backward_compute_s();
  line["backward_comm_s"] = m.backward_comm_s;
  if (m.reduced_in_backward) line["reduced_in_backward"] = *m.reduced_in_backward;
  line["memory_bytes"] = m.memory_bytes;
  line["peak_memory_bytes"] = m.peak_memory_bytes;
  if (m.device_memory) {
    line["device_memory_bytes"] = m.device_memory->in_use_bytes;
    line["peak_device_memory_bytes"] = m.device_memory->peak_in_use_bytes;
    line["held_device_memory_bytes"] = m.device_memory->held_bytes;
  }
  if (m.transfers) {
    line["device_waits"] = m.transfers->waits;
    line["copies_to_device"] = m.transfers->copies_to_device;
    line["copies_to_host"] = m.transfers->copies_to_host;
  }
  const auto each_layer = [&](auto RouterMetrics::*figure) {
    auto figures = nlohmann::ordered_json::array();
    for (const auto& router : m.routers) figures.push_back(router.*figure);
    return figures;
  };
  line["expert_load_max_over_mean"] = each_layer(&RouterMetrics::load_max_over_mean);
  line["expert_load_p95_over_mean"] = each_layer(&RouterMetrics::load_p95_over_mean);
  line["dead_experts"] = each_layer(&RouterMetrics::dead_experts);
  line["reassigned_share"] = each_layer(&RouterMetrics::reassigned_share);
  line["dropped_share"] = each_layer(&RouterMetrics::dropped_share);
  line["layer_router_entropy"] = each_layer(&RouterMetrics::entropy);
  add_layers(m, line);
  add_ranks(m, line);
  line["attempt"] = m.attempt;
  line["time"] = unix_time_s();
  return line.dump();
}

}  // namespace athanor::inline metrics
