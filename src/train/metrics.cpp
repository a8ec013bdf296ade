#include "train/metrics.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/wall_clock.h"

namespace athanor {
namespace {

// The NaN that processors make is negative; scripts look for "nan".
double unsigned_nan(double value) { return std::isnan(value) ? NAN : value; }

// A line does not grow with the number of ranks.
nlohmann::ordered_json extremes(const std::vector<double>& norms) {
  const auto [least, most] = std::ranges::minmax_element(norms);
  const auto at = [&](auto where) -> nlohmann::ordered_json {
    return {{"rank", where - norms.begin()}, {"norm", *where}};
  };
  return {{"least", at(least)}, {"most", at(most)}};
}

void add_norms(const StepMetrics& m, nlohmann::ordered_json& json) {
  const auto& [ranks, experts] = *m.rank_norms;
  if (ranks.size() <= RankNorms::kMostListed) json["rank_grad_norms"] = ranks;
  if (ranks.size() > RankNorms::kMostListed) json["rank_grad_norm_extremes"] = extremes(ranks);
  json["rank_grad_norm_imbalance"] = RankNorms::imbalance(ranks);
  if (experts.empty()) return;
  if (experts.size() <= RankNorms::kMostListed) json["expert_grad_norms"] = experts;
  if (experts.size() > RankNorms::kMostListed) json["expert_grad_norm_extremes"] = extremes(experts);
  json["expert_grad_norm_imbalance"] = RankNorms::imbalance(experts);
}

void add_ranks(const StepMetrics& m, nlohmann::ordered_json& json) {
  if (m.rank_norms) add_norms(m, json);
  if (m.tokens_per_dest_rank) {
    const auto& tokens = *m.tokens_per_dest_rank;
    json["tokens_per_dest_rank"] = {{"max", tokens.max}, {"mean", tokens.mean}, {"min", tokens.min}};
  }
  for (const auto& [name, group] : m.traffic) {
    json["communication"][name] = {{"calls", group.calls},
                                   {"bytes_inside", group.bytes_inside},
                                   {"bytes_outside", group.bytes_outside},
                                   {"waited_s", group.waited_s}};
  }
}

// Six digits: fp32 sums have no more, and lines of deep models stay short.
double six_digits(double value) {
  return std::isfinite(value) ? std::strtod(fmt::format("{:.6g}", value).c_str(), nullptr) : value;
}

void add_layers(const StepMetrics& m, nlohmann::ordered_json& json) {
  if (!m.layers) return;
  const auto& layers = *m.layers;
  const auto rounded = [](auto begin, auto end) {
    auto list = nlohmann::ordered_json::array();
    for (; begin != end; ++begin) list.push_back(six_digits(*begin));
    return list;
  };
  // The first row is the embedding, the last one the output.
  const auto list_of = [&](const std::vector<double>& rows) { return rounded(rows.begin() + 1, rows.end() - 1); };
  json["embedding_grad_norm"] = six_digits(layers.grad_norm.front());
  json["layer_grad_norm"] = list_of(layers.grad_norm);
  json["output_grad_norm"] = six_digits(layers.grad_norm.back());
  json["embedding_weight_norm"] = six_digits(layers.weight_norm.front());
  json["layer_weight_norm"] = list_of(layers.weight_norm);
  json["output_weight_norm"] = six_digits(layers.weight_norm.back());
  json["embedding_update_norm"] = six_digits(layers.update_norm.front());
  json["layer_update_norm"] = list_of(layers.update_norm);
  json["output_update_norm"] = six_digits(layers.update_norm.back());
  json["layer_activation_rms"] = rounded(layers.activation_rms.begin(), layers.activation_rms.end());
  json["layer_attention_logit_max"] = rounded(layers.attention_logit_max.begin(), layers.attention_logit_max.end());
}

}  // namespace

double RankNorms::imbalance(const std::vector<double>& norms) {
  if (norms.empty()) return 1;
  const auto [least, most] = std::ranges::minmax(norms);
  return least == most ? 1 : most / least;
}

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
  nlohmann::ordered_json json;  // ordered, so that `head` on the file is easy to read; its NaN and infinity are printed
                                // as null
  json["step"] = m.step;
  json["loss"] = m.loss;
  if (m.validation_loss) json["validation_loss"] = *m.validation_loss;
  if (!m.validation_losses.empty()) json["validation_losses"] = m.validation_losses;
  if (!m.stage.empty()) json["stage"] = m.stage;
  if (!m.tokens_drawn.empty()) json["tokens_drawn"] = m.tokens_drawn;
  json["aux_loss"] = m.aux_loss;
  json["z_loss"] = m.z_loss;
  json["router_entropy"] = m.router_entropy;
  json["grad_norm"] = m.grad_norm;
  json["lr"] = m.lr;
  json["changed_share"] = m.changed_share;
  json["tokens"] = m.tokens;
  json["tokens_seen"] = m.tokens_seen;
  json["tps"] = m.tokens_per_second();
  json["tflops"] = m.flops_per_second() / 1e12;
  json["mfu"] = m.mfu();
  json["gemm_peak_tflops"] = m.gemm_peak_flops / 1e12;
  json["gemm_peak_is"] = m.gemm_peak_is;
  json["threads"] = m.threads;
  if (m.seconds_left) json["seconds_left"] = *m.seconds_left;
  json["step_s"] = m.step_s;
  json["data_s"] = m.data_s;
  json["forward_s"] = m.forward_s;
  json["backward_s"] = m.backward_s;
  json["optimizer_s"] = m.optimizer_s;
  json["forward_compute_s"] = m.forward_compute_s();
  json["forward_comm_s"] = m.forward_comm_s;
  json["backward_compute_s"] = m.backward_compute_s();
  json["backward_comm_s"] = m.backward_comm_s;
  if (m.reduced_in_backward) json["reduced_in_backward"] = *m.reduced_in_backward;
  json["memory_bytes"] = m.memory_bytes;
  json["peak_memory_bytes"] = m.peak_memory_bytes;
  if (m.device_memory) {
    json["device_memory_bytes"] = m.device_memory->in_use_bytes;
    json["peak_device_memory_bytes"] = m.device_memory->peak_in_use_bytes;
    json["held_device_memory_bytes"] = m.device_memory->held_bytes;
  }
  if (m.transfers) {
    json["device_waits"] = m.transfers->waits;
    json["copies_to_device"] = m.transfers->copies_to_device;
    json["copies_to_host"] = m.transfers->copies_to_host;
  }
  const auto each_layer = [&](auto RouterMetrics::*figure) {
    auto figures = nlohmann::ordered_json::array();
    for (const auto& router : m.routers) figures.push_back(router.*figure);
    return figures;
  };
  json["expert_load_max_over_mean"] = each_layer(&RouterMetrics::load_max_over_mean);
  json["expert_load_p95_over_mean"] = each_layer(&RouterMetrics::load_p95_over_mean);
  json["dead_experts"] = each_layer(&RouterMetrics::dead_experts);
  json["reassigned_share"] = each_layer(&RouterMetrics::reassigned_share);
  json["dropped_share"] = each_layer(&RouterMetrics::dropped_share);
  json["layer_router_entropy"] = each_layer(&RouterMetrics::entropy);
  add_layers(m, json);
  add_ranks(m, json);
  json["attempt"] = m.attempt;
  json["time"] = unix_time_s();
  return json.dump();
}

}  // namespace athanor
