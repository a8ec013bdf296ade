#include "moe/dispatch_auto.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/bounded_json.h"
#include "base/files.h"
#include "base/wall_clock.h"
#include "ops/device_traits.h"
#include "ops/tiles.h"
#include "ops/transfer.h"

namespace athanor::moe {
namespace {

using nlohmann::json;

constexpr int kFirstRounds = 2, kFinalists = 4, kRounds = 4;

struct Trial {
  DispatchOptions options;
  std::vector<double> seconds;  // seconds of the slowest rank, for each round

  /// The least time is a good estimate from few rounds on a machine with other load.
  double least() const { return *std::ranges::min_element(seconds); }
  double median() const {
    std::vector<double> sorted = seconds;
    std::ranges::sort(sorted);
    return sorted[sorted.size() / 2];
  }
};

std::vector<Trial> candidates(const DispatchShape& shape, const DispatchOptions& given, int ranks) {
  std::vector<DispatchKind> kinds = {given.kind};
  if (given.kind == DispatchKind::kAuto) {
    kinds = {DispatchKind::kAllGather, DispatchKind::kAllToAll};
    // With another tree, the bits of a run would depend on measurements.
    const bool same_tree = std::has_single_bit(static_cast<unsigned>(given.inner_ranks));
    if (same_tree && given.inner_ranks > 1 && given.inner_ranks < ranks) kinds.push_back(DispatchKind::kAllToAll2d);
  }
  std::vector<int64_t> chunks = {1, 2, 4, 8};
  if (given.chunks > 0) chunks = {given.chunks};
  std::vector<Trial> trials;
  for (const DispatchKind kind : kinds) {
    for (const int64_t c : chunks) {
      if (c > std::max<int64_t>(shape.tokens, 1)) continue;
      for (const int64_t in_flight : {1, 2}) {
        if (in_flight < c || c == 1) trials.push_back({{kind, c, in_flight, given.inner_ranks}, {}});
        if (c <= 2) break;  // at most two can be in flight
      }
    }
  }
  return trials;
}

// One layer of the run's shape with uniform choices, with the same amount of work on every rank.
struct Layer {
  Tensor x, weights, ids;
  ops::ExpertWeights experts;
  std::deque<std::pair<Tensor, Tensor>> inputs;  // those of the last trials
};

// Returns new memory with tokens and gradients. The memory of a trial just before would be in caches, which makes what
// comes later look faster than it is in a run.
std::pair<Tensor, Tensor> fresh_inputs(Layer& layer) {
  constexpr size_t kKept = 3;
  layer.inputs.emplace_back(layer.x.clone().requires_grad_(), layer.x.clone());
  if (layer.inputs.size() > kKept) layer.inputs.pop_front();
  return layer.inputs.back();
}

// Drops the choices of an expert beyond the first `most`.
void drop_beyond(int64_t most, const Tensor& ids_TK, int64_t num_experts) {
  std::vector<int64_t> taken(static_cast<size_t>(num_experts));
  auto* ids = ids_TK.data_ptr<int64_t>();
  for (int64_t i = 0; i < ids_TK.numel(); ++i)
    if (taken[static_cast<size_t>(ids[i])]++ >= most) ids[i] = ~ids[i];
}

Layer make_layer(const DispatchShape& shape, int64_t ranks, int rank) {
  const at::Generator random = at::detail::createCPUGenerator(static_cast<uint64_t>(rank) + 1);
  const int64_t local = shape.num_experts / ranks;
  const auto weight = [&](at::IntArrayRef sizes) -> Weight {
    return {at::full(sizes, 0.01, at::TensorOptions(shape.dtype).device(shape.device)),
            at::zeros(sizes, at::TensorOptions(at::kFloat).device(shape.device))};
  };
  const Tensor x = at::randn({shape.tokens, shape.hidden}, random, at::kFloat).to(shape.dtype);
  const Tensor preference = at::rand({shape.tokens, shape.num_experts}, random, at::kFloat);
  const Tensor weights = at::full({shape.tokens, shape.k}, 1.0 / static_cast<double>(shape.k), at::kFloat);
  const Tensor ids = std::get<1>(preference.topk(shape.k, 1)).contiguous();
  if (shape.most_of_expert >= 0) drop_beyond(shape.most_of_expert, ids, shape.num_experts);
  weights.masked_fill_(ids < 0, 0);
  return {x.to(shape.device),
          weights.to(shape.device).requires_grad_(),
          ids.to(shape.device),
          ops::make_experts(shape.form, local, shape.intermediate, shape.hidden, weight),
          {}};
}

void run_once(Layer& layer, const std::pair<Tensor, Tensor>& inputs, comm::Communicator& experts,
              const DispatchOptions& options, int64_t most_of_expert) {
  const at::AutoGradMode with_gradients(true);
  const auto& [x, dy] = inputs;
  Dispatch dispatch(experts, options);
  const Tensor y = dispatch.experts(x, layer.weights, layer.ids, layer.experts, CombineWeights::kAfterDown,
                                    {.equal = true, .most_of_expert = most_of_expert});
  torch::autograd::backward({y}, {dy});
  layer.weights.mutable_grad().reset();
}

// Runs a round of all trials, one after the other, so that other load on the machine affects them equally.
void run_round(std::vector<Trial*> trials, Layer& layer, comm::Communicator& world, comm::Communicator& experts,
               int64_t most_of_expert) {
  Tensor seconds = at::empty({static_cast<int64_t>(trials.size())}, at::kDouble);
  for (size_t i = 0; i < trials.size(); ++i) {
    const auto inputs = fresh_inputs(layer);
    ops::wait_for(layer.x.device());
    world.barrier();
    const auto begin = std::chrono::steady_clock::now();
    run_once(layer, inputs, experts, trials[i]->options, most_of_expert);
    ops::wait_for(layer.x.device());
    seconds.data_ptr<double>()[i] = seconds_since(begin);
  }
  world.all_reduce(seconds, comm::Reduction::kMax).wait();
  for (size_t i = 0; i < trials.size(); ++i) trials[i]->seconds.push_back(seconds.const_data_ptr<double>()[i]);
}

std::string text_of(const ops::ExpertForm& form) {
  return (form.is_gated ? "" : " of two matrices") + std::string(form.has_biases ? " with biases" : "");
}

std::string key_of(const DispatchShape& s, const DispatchOptions& given, int world, int experts) {
  return fmt::format(
      "{} tokens of {}, {} of {} experts of {}{}{}, {}{}; {} ranks, {} for the experts, {} a node; {}, {} chunks",
      s.tokens, s.hidden, s.k, s.num_experts, s.intermediate, text_of(s.form),
      s.most_of_expert < 0 ? "" : fmt::format(" with at most {} tokens of a rank", s.most_of_expert),
      c10::toString(s.dtype), ops::traits_of(s.device).on_kind, world, experts, given.inner_ranks, word_of(given.kind),
      given.chunks);
}

std::optional<DispatchOptions> read_cache(const std::filesystem::path& path, const std::string& key, int inner_ranks) {
  if (path.empty() || !std::filesystem::exists(path)) return {};
  try {
    const json found = read_json(read_file(path));
    if (found.at("key") != key) return {};
    const DispatchOptions options{value_of<DispatchKind>(found.at("dispatch").get<std::string>()), found.at("chunks"),
                                  found.at("in_flight"), inner_ranks};
    if (options.kind == DispatchKind::kAuto || options.chunks < 1 || options.in_flight < 1) return {};
    return options;
  } catch (const std::exception&) {
    return {};  // it is measured again, and written again
  }
}

std::string record_of(const std::string& key, const DispatchOptions& best, const std::vector<Trial>& trials) {
  json all = json::array();
  for (const Trial& t : trials) {
    all.push_back({{"dispatch", word_of(t.options.kind)},
                   {"chunks", t.options.chunks},
                   {"in_flight", t.options.in_flight},
                   {"median_s", t.median()},
                   {"rounds", t.seconds.size()}});
  }
  const json file = {{"key", key},
                     {"dispatch", word_of(best.kind)},
                     {"chunks", best.chunks},
                     {"in_flight", best.in_flight},
                     {"measured", all}};
  return file.dump(2) + "\n";
}

std::string table_of(const std::vector<Trial>& trials, const DispatchOptions& best, const std::string& key) {
  std::string table = fmt::format("dispatch, measured for {}\n{:>14} {:>7} {:>9} {:>12} {:>7}\n", key, "kind", "chunks",
                                  "in flight", "median ms", "rounds");
  for (const Trial& t : trials) {
    const bool kept =
        t.options.kind == best.kind && t.options.chunks == best.chunks && t.options.in_flight == best.in_flight;
    table += fmt::format("{:>14} {:>7} {:>9} {:>12.3f} {:>7}{}\n", word_of(t.options.kind), t.options.chunks,
                         t.options.in_flight, 1e3 * t.median(), t.seconds.size(), kept ? "  kept" : "");
  }
  return table;
}

// Gives rank 0's choice to all.
std::optional<DispatchOptions> agree(comm::Communicator& world, const std::optional<DispatchOptions>& own,
                                     int inner_ranks) {
  const Tensor word = at::zeros({4}, at::kLong);
  auto* w = word.data_ptr<int64_t>();
  if (own) w[0] = 1, w[1] = static_cast<int64_t>(own->kind), w[2] = own->chunks, w[3] = own->in_flight;
  world.broadcast(word, 0).wait();
  if (w[0] == 0) return {};
  return DispatchOptions{static_cast<DispatchKind>(w[1]), w[2], w[3], inner_ranks};
}

}  // namespace

TunedDispatch tune_dispatch(comm::Communicator& world, comm::Communicator& experts, const DispatchShape& shape,
                            const DispatchOptions& given, const std::filesystem::path& cache) {
  const std::string key = key_of(shape, given, world.size(), experts.size());
  std::optional<DispatchOptions> own;
  if (world.rank() == 0) own = read_cache(cache, key, given.inner_ranks);
  if (const auto remembered = agree(world, own, given.inner_ranks)) return {*remembered, true, {}};

  std::vector<Trial> trials = candidates(shape, given, experts.size());
  ATHANOR_ASSERT(!trials.empty());
  std::vector<Trial*> all;
  for (Trial& trial : trials) all.push_back(&trial);
  Layer layer = make_layer(shape, experts.size(), experts.rank());
  const int64_t most = shape.most_of_expert;
  run_once(layer, fresh_inputs(layer), experts, trials.front().options,
           most);  // memory and code are touched for the first time
  for (int round = 0; round < kFirstRounds; ++round) run_round(all, layer, world, experts, most);
  std::ranges::stable_sort(all, {}, &Trial::least);  // the times are the same on every rank, and so is the order
  all.resize(std::min<size_t>(all.size(), kFinalists));
  for (int round = 0; round < kRounds && all.size() > 1; ++round) run_round(all, layer, world, experts, most);
  const Trial* best = *std::ranges::min_element(all, {}, &Trial::median);
  const DispatchOptions kept = *agree(world, best->options, given.inner_ranks);
  experts.reset_traffic();  // the counts of the run begin after this
  std::string table = table_of(trials, kept, key);
  if (ops::product_bits_follow_rows(layer.x)) {
    table +=
        "matrix products are the library's here, so this choice may change the last bits of results; set moe.dispatch "
        "and "
        "moe.dispatch_chunks where two runs must be equal\n";
  }
  return {kept, false, table, world.rank() == 0 ? record_of(key, kept, trials) : ""};
}

}  // namespace athanor::moe
