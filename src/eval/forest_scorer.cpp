#include "eval/forest_scorer.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "ops/transfer.h"
#include "parallel/share.h"

namespace athanor::inline eval {
namespace {

// Batches whose tensors are in memory at the same time, for each pipeline rank: enough that few of them wait.
constexpr size_t kBatchesAtOnce = 4;

template <class T>
Tensor numbers_of(const std::vector<T>& values) {
  Tensor numbers = at::empty({std::ssize(values)}, at::kLong);
  std::copy(values.begin(), values.end(), numbers.data_ptr<int64_t>());
  return numbers;
}

Microbatch microbatch_of(const TokenForest& batch, at::Device device) {
  Microbatch result;
  const int64_t num_tokens = std::ssize(batch.tokens), num_targets = std::ssize(batch.targets);
  const Tensor all =
      ops::send(at::cat({numbers_of(batch.tokens), numbers_of(batch.targets), numbers_of(batch.rows)}), device);
  result.tokens = all.narrow(0, 0, num_tokens).unsqueeze(0);
  result.labels.targets = all.narrow(0, num_tokens, num_targets).unsqueeze(0);
  result.labels.rows = all.narrow(0, num_tokens + num_targets, num_targets);
  result.labels.num_targets = num_targets;
  result.labels.tree = std::make_shared<const ops::TokenTree>(ops::with_mask(ops::make_tree(batch.nodes), device));
  return result;
}

// What a rank computes whose batches are over while others still need its experts.
TokenForest one_token() { return {{0}, {{0, 1, -1}}, {0}, {0}, {}}; }

// Adds a text that no one scores, so that the number of tokens is a multiple.
void fill_up(TokenForest& batch, int64_t multiple_of) {
  const int64_t num_tokens = std::ssize(batch.tokens), missing = (multiple_of - num_tokens % multiple_of) % multiple_of;
  if (missing == 0) return;
  batch.nodes.push_back({num_tokens, num_tokens + missing, -1});
  batch.tokens.resize(batch.tokens.size() + static_cast<size_t>(missing), 0);
}

// What the first rank was given, on every rank.
std::optional<ForestBatches> share_batches(const Mesh& mesh, const ForestBatches* given) {
  std::vector<int64_t> numbers = {-1, 0};
  if (given) {
    numbers = {std::ssize(given->batches), given->num_sequences};
    for (const TokenForest& batch : given->batches) append_numbers(batch, numbers);
  }
  std::string bytes(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(int64_t));
  bytes = broadcast_text(mesh.world().all(), bytes);
  numbers.resize(bytes.size() / sizeof(int64_t));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  if (numbers[0] < 0) return std::nullopt;
  ForestBatches shared{{}, numbers[1]};
  std::span<const int64_t> rest = std::span(numbers).subspan(2);
  for (int64_t i = 0; i < numbers[0]; ++i) shared.batches.push_back(take_forest(rest));
  return shared;
}

// The batches of this data rank. Ranks that share experts get equally many.
std::vector<TokenForest> pick_own(const Mesh& mesh, std::vector<TokenForest> batches) {
  const auto data_ranks = static_cast<size_t>(mesh.layout().data());
  std::vector<TokenForest> own;
  for (size_t i = static_cast<size_t>(mesh.data_rank()); i < batches.size(); i += data_ranks)
    own.push_back(std::move(batches[i]));
  if (mesh.layout().expert() > 1) own.resize((batches.size() + data_ranks - 1) / data_ranks, one_token());
  return own;
}

void add_scores(const TokenForest& batch, const TokenScores& scores, const Tensor& sums) {
  if (batch.members.empty()) return;
  const Tensor log_probability = ops::fetch(scores.log_probability.to(at::kFloat).contiguous());
  const Tensor is_greedy = ops::fetch(scores.is_greedy.contiguous());
  const auto* value = log_probability.const_data_ptr<float>();
  const auto* greedy = is_greedy.const_data_ptr<bool>();
  auto* sum = sums.data_ptr<double>();
  for (const auto& [sequence, begin, count] : batch.members) {
    double log_likelihood = 0;
    for (int64_t i = begin; i < begin + count; ++i) log_likelihood += value[i];
    sum[2 * sequence] = log_likelihood;
    sum[2 * sequence + 1] = std::all_of(greedy + begin, greedy + begin + count, [](bool each) { return each; });
  }
}

}  // namespace

void append_numbers(const TokenForest& batch, std::vector<int64_t>& numbers) {
  for (const size_t size : {batch.tokens.size(), batch.nodes.size(), batch.targets.size(), batch.members.size()})
    numbers.push_back(static_cast<int64_t>(size));
  numbers.insert(numbers.end(), batch.tokens.begin(), batch.tokens.end());
  for (const auto& [begin, end, parent] : batch.nodes) numbers.insert(numbers.end(), {begin, end, parent});
  numbers.insert(numbers.end(), batch.rows.begin(), batch.rows.end());
  numbers.insert(numbers.end(), batch.targets.begin(), batch.targets.end());
  for (const auto& [sequence, begin, count] : batch.members) numbers.insert(numbers.end(), {sequence, begin, count});
}

TokenForest take_forest(std::span<const int64_t>& numbers) {
  const auto take = [&](int64_t count) {
    const auto taken = numbers.first(static_cast<size_t>(count));
    numbers = numbers.subspan(static_cast<size_t>(count));
    return taken;
  };
  const auto sizes = take(4);
  TokenForest batch;
  const auto fill = [&](std::vector<int32_t>& to, int64_t count) {
    for (const int64_t each : take(count)) to.push_back(static_cast<int32_t>(each));
  };
  fill(batch.tokens, sizes[0]);
  for (int64_t i = 0; i < sizes[1]; ++i) {
    const auto node = take(3);
    batch.nodes.push_back({node[0], node[1], node[2]});
  }
  fill(batch.rows, sizes[2]);
  fill(batch.targets, sizes[2]);
  for (int64_t i = 0; i < sizes[3]; ++i) {
    const auto member = take(3);
    batch.members.push_back({member[0], member[1], member[2]});
  }
  return batch;
}

std::optional<std::vector<SequenceScore>> score_forests(ModelState& model, const ForestBatches* given,
                                                        int64_t multiple_of) {
  const Mesh& mesh = model.mesh;
  auto shared = share_batches(mesh, given);
  if (!shared) return std::nullopt;
  std::vector<TokenForest> own = pick_own(mesh, std::move(shared->batches));
  for (TokenForest& batch : own) fill_up(batch, multiple_of);
  const Tensor sums = at::zeros({shared->num_sequences, 2}, at::kDouble);
  const bool tells = mesh.layout().coordinate(mesh.rank(), Axis::kTensor) == 0;
  const size_t at_once = kBatchesAtOnce * static_cast<size_t>(mesh.layout().pipeline());
  for (size_t begin = 0; begin < own.size(); begin += at_once) {
    const auto some = std::span(own).subspan(begin, std::min(at_once, own.size() - begin));
    std::vector<Microbatch> microbatches;
    for (const TokenForest& batch : some) microbatches.push_back(microbatch_of(batch, model.device()));
    const auto scores = model.pipeline.score(microbatches);  // none except on the last stage's rank
    for (size_t i = 0; tells && i < scores.size(); ++i) add_scores(some[i], scores[i], sums);
    mesh.world().note_work(std::ssize(some));  // other ranks may be done with the window
  }
  if (mesh.world().size() > 1) mesh.world().all().all_reduce(sums).wait();  // each is on one rank, and 0 elsewhere
  std::vector<SequenceScore> result;
  const auto* sum = sums.const_data_ptr<double>();
  for (int64_t i = 0; i < shared->num_sequences; ++i) result.push_back({sum[2 * i], sum[2 * i + 1] != 0});
  return result;
}

}  // namespace athanor::inline eval
