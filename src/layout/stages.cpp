#include "layout/stages.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "arch/flops.h"
#include "arch/model_spec.h"
#include "base/error.h"
#include "config/findings.h"

namespace athanor::inline layout {
namespace {

constexpr int64_t kUsualTokens = 4096;
constexpr double kNever = std::numeric_limits<double>::infinity();

// FLOPs for a token.
struct TokenCosts {
  std::vector<double> layers;
  double output;
};

TokenCosts token_costs(const ModelConfig& model) {
  const int64_t tokens = std::min(model.max_position_embeddings, kUsualTokens);
  const auto n = static_cast<double>(tokens);
  TokenCosts costs{{}, count_output_flops(model, tokens) / n};
  for (const LayerSpec& layer : make_model_spec(model).layers)
    costs.layers.push_back(count_layer_flops(layer, 1, tokens).total() / n);
  return costs;
}

// Returns the cost of the layers before each layer, and of everything. The unit divides all costs, so that sums and
// squares are exact, and equal splits compare equal.
std::vector<double> sums_of_costs(const ModelConfig& model) {
  const auto [layers, output] = token_costs(model);
  int64_t unit = std::llround(output);
  for (const double cost : layers) unit = std::gcd(unit, std::llround(cost));
  std::vector<double> sums = {0};
  for (const double cost : layers) sums.push_back(sums.back() + std::round(cost / static_cast<double>(unit)));
  sums.back() += std::round(output / static_cast<double>(unit));
  return sums;
}

// best[s][l] is the least value of layers from l on in stages from s on. `join` adds a stage's cost to the value of the
// later stages; stages that cost more than `most` are excluded.
template <class Join>
std::vector<std::vector<double>> best_from(const std::vector<double>& sums, size_t stages, double most,
                                           const Join& join) {
  const size_t layers = sums.size() - 1;
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(layers + 1, kNever));
  best[stages][layers] = 0;
  for (size_t s = stages; s-- > 0;) {
    for (size_t l = s; l < layers; ++l) {
      for (size_t end = l + 1; end + (stages - s - 1) <= layers && sums[end] - sums[l] <= most; ++end) {
        best[s][l] = std::min(best[s][l], join(sums[end] - sums[l], best[s + 1][end]));
      }
    }
  }
  return best;
}

std::vector<int64_t> split_by_cost(const ModelConfig& model, size_t stages) {
  const auto sums = sums_of_costs(model);
  const auto dearest = best_from(sums, stages, kNever, [](double cost, double rest) { return std::max(cost, rest); });
  // The sum of the squares of costs is least if the costs are even.
  const double most = dearest[0][0];
  const auto squares = [](double cost, double rest) { return cost * cost + rest; };
  const auto uneven = best_from(sums, stages, most, squares);
  std::vector<int64_t> split;
  size_t first = 0;
  for (size_t s = 0; s < stages; ++s) {
    size_t end = first + 1;
    while (sums[end] - sums[first] > most || squares(sums[end] - sums[first], uneven[s + 1][end]) != uneven[s][first])
      ++end;
    split.push_back(static_cast<int64_t>(end - first));
    first = end;
  }
  return split;
}

}  // namespace

std::vector<StageLayers> split_stages(const ModelConfig& model, const ParallelismConfig& p) {
  const auto stages = static_cast<size_t>(p.pipeline_parallel_degree * p.virtual_stages);
  ATHANOR_ASSERT(stages <= static_cast<size_t>(model.num_hidden_layers));
  const auto layers = p.pipeline_split.empty() ? split_by_cost(model, stages) : p.pipeline_split;
  ATHANOR_ASSERT(layers.size() == stages);
  std::vector<StageLayers> split;
  int64_t first = 0;
  for (size_t s = 0; s < stages; ++s) {
    split.push_back({first, first + layers[s], s == 0, s + 1 == stages});
    first += layers[s];
  }
  ATHANOR_ASSERT(first == model.num_hidden_layers);
  return split;
}

std::vector<StageLayers> stages_of(const ModelConfig& model, const ParallelismConfig& parallelism, int pipeline_rank) {
  const auto split = split_stages(model, parallelism);
  std::vector<StageLayers> own;
  for (auto s = static_cast<size_t>(pipeline_rank); s < split.size();
       s += static_cast<size_t>(parallelism.pipeline_parallel_degree))
    own.push_back(split[s]);
  return own;
}

double stage_cost(const ModelConfig& model, const StageLayers& stage) {
  const auto [layers, output] = token_costs(model);
  const auto of_stage =
      std::span(layers).subspan(static_cast<size_t>(stage.first), static_cast<size_t>(stage.num_layers()));
  return std::accumulate(of_stage.begin(), of_stage.end(), stage.has_head ? output : 0.0);
}

std::vector<std::string> find_split_faults(const ModelConfig& model, const ParallelismConfig& p) {
  Findings found;
  const int64_t layers = model.num_hidden_layers;
  // Degrees are read as any positive numbers; more stages than possible count as infinitely many.
  int64_t stages = 0;
  if (__builtin_mul_overflow(p.pipeline_parallel_degree, p.virtual_stages, &stages)) {
    stages = std::numeric_limits<int64_t>::max();
  }
  const auto product = fmt::format("parallelism.pipeline_parallel_degree ({}) · virtual_stages ({})",
                                   p.pipeline_parallel_degree, p.virtual_stages);
  found.require(stages <= layers,
                "{} = {} stages, and the model has {} layers (model.num_hidden_layers): each stage needs at least one; "
                "lower the degree or virtual_stages",
                product, stages, layers);
  if (p.pipeline_split.empty()) return found.take();
  if (stages == 1) {
    found.require(false, "parallelism.pipeline_split is for pipelines, and {} is 1: leave it out", product);
    return found.take();
  }
  const auto num_given = static_cast<int64_t>(p.pipeline_split.size());
  found.require(num_given == stages,
                "parallelism.pipeline_split has {} numbers for the {} stages of {}: give one for each", num_given,
                stages, product);
  int64_t sum = 0;
  bool overflows = false;
  for (size_t s = 0; s < p.pipeline_split.size(); ++s) {
    const int64_t here = p.pipeline_split[s];
    found.require(here >= 1, "parallelism.pipeline_split[{}] ({}): a stage has at least one layer", s, here);
    overflows = overflows || __builtin_add_overflow(sum, here, &sum);
  }
  found.require(overflows || sum == layers,
                "parallelism.pipeline_split ({}) adds up to {} layers, and the model has {} (model.num_hidden_layers): "
                "change it by {:+}",
                fmt::join(p.pipeline_split, ", "), sum, layers, static_cast<double>(layers) - static_cast<double>(sum));
  found.require(!overflows, "parallelism.pipeline_split adds up to more layers than there can be; the model has {}",
                layers);
  return found.take();
}

}  // namespace athanor::inline layout
