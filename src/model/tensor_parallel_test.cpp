// A layer whose matrices ranks share gives the results of one process, for any number of ranks and any way to hold its
// tokens, experts and activations. Ranks are threads.

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "comm/thread_ranks.h"
#include "layout/holding.h"
#include "model/initialize.h"
#include "model/layer.h"
#include "ops/error_bound.h"

namespace athanor::tensor_parallel_test {
namespace {

constexpr int64_t kBatch = 2, kSeqLen = 12, kHidden = 48;  // sizes on each data rank

struct Case {
  std::string what = {};
  int tensor = 2, experts = 1;  // degrees; the number of data ranks is that of expert ranks
  bool sequence = false;
  at::ScalarType dtype = at::kFloat;
  RecomputeKinds recompute = {};
  DispatchKind dispatch = DispatchKind::kAllToAll;
  CombineWeights combine = CombineWeights::kAfterDown;
};

ModelConfig model_of(const std::string& family, int64_t heads = 12, int64_t kv_heads = 12) {
  ModelConfig m;
  m.family = family;
  m.hidden_size = kHidden;
  m.attention_head_dim = 4;
  m.num_hidden_layers = 1;
  m.num_attention_heads = heads;
  m.num_key_value_heads = kv_heads;
  m.intermediate_size = 24;
  m.vocab_size = 12;
  m.initializer_range = 0.15;
  if (family_of(m).sparse) m.num_experts = 6, m.num_experts_per_tok = 2;
  if (family == "qwen3_moe") m.moe_intermediate_size = 24;
  if (family_of(m).has_shared_experts) m.num_shared_experts = 1, m.shared_expert_intermediate_size = 36;
  if (family_of(m).clips_qkv) m.clip_qkv = 1.5;
  if (family_of(m).latent_attention) {
    m.attention_head_dim = m.num_key_value_heads = 0;
    m.q_lora_rank = 10, m.kv_lora_rank = 8, m.qk_nope_head_dim = 4, m.qk_rope_head_dim = 2, m.v_head_dim = 5;
    m.moe_intermediate_size = 24, m.shared_expert_intermediate_size = 0;
  }
  if (family_of(m).caps_attention) m.attn_logit_softcapping = 1.5;
  return m;
}

RunConfig config_of(const ModelConfig& model, const Case& c) {
  RunConfig config;
  config.model = model;
  config.parallelism.tensor_parallel_degree = c.tensor;
  config.parallelism.expert_parallel_degree = c.experts;
  config.parallelism.sequence_parallel = c.sequence;
  config.data.seq_len = kSeqLen;
  config.train.micro_batch_size = kBatch;
  config.train.global_batch_size = kBatch * c.experts;
  return config;
}

std::unique_ptr<ParameterStore> store_of(const std::vector<HeldParameter>& held, at::ScalarType dtype) {
  return std::make_unique<ParameterStore>(make_bucket_entries(held), dtype, ParameterStore::Use::kTraining);
}

Tensor slice_of(Tensor x, const HeldParameter& p) {
  for (size_t d = 0; d < p.extent.size(); ++d) x = x.narrow(static_cast<int64_t>(d), p.offset[d], p.extent[d]);
  return x;
}

// Returns numbers for every parameter, including norms. They depend on the name, and are rounded to the parameter's
// type.
Tensor weight_of(const ModelConfig& model, const ParameterSpec& spec, at::ScalarType dtype) {
  uint64_t seed = 7;
  for (const char letter : spec.name) seed = seed * 31 + static_cast<unsigned char>(letter);
  const Tensor normal = at::randn(spec.shape, at::detail::createCPUGenerator(seed));
  return (spec.is_norm() ? 1 + 0.1 * normal : normal * model.initializer_range).to(dtype).to(at::kFloat);
}

struct Inputs {
  Tensor x, dy;  // for all data ranks' sequences, [sequences, T, D]
};
Inputs inputs(int64_t sequences, at::ScalarType dtype) {
  const auto normal = [&](uint64_t seed) {
    return at::randn({sequences, kSeqLen, kHidden}, at::detail::createCPUGenerator(seed)).to(dtype);
  };
  return {normal(1), normal(2)};
}

struct Result {
  Tensor y, dx;  // for the rank's tokens
  std::map<std::string, Tensor> grads;
  Tensor chosen;
  comm::Traffic traffic;
};

// Computes forward and backward, with losses of the router's own.
Result run_layer(const ModelConfig& model, const ParameterStore& parameters, const Case& c, const TensorRanks& ranks,
                 const std::shared_ptr<moe::Dispatch>& dispatch, const Tensor& x, const Tensor& dy, int64_t batch) {
  moe::RoutingPolicy policy;
  policy.combine = c.combine;
  Layer layer(make_layer_spec(model, 0), parameters, policy, ranks);
  if (dispatch) layer.sparse()->set_dispatch(dispatch);
  // In bf16 a choice between near scores may differ, so all tokens choose the same two experts there.
  if (c.dtype == at::kBFloat16 && model.is_moe()) {
    layer.sparse()->set_router_bias(at::arange(6).remainder(3).eq(1).to(at::kFloat) * 10);
  }
  const Tensor positions = at::arange(kSeqLen).expand({batch, kSeqLen});
  const Tensor frequency = ops::inverse_frequency(model.head_dim(), 10000);
  const auto context = std::make_shared<const LayerContext>(
      LayerContext{{ops::make_rotation(positions, frequency), {}}, {}, c.recompute, {}, batch});
  if (ranks.group) ranks.group->reset_traffic();
  const Tensor in = x.clone().requires_grad_();
  std::vector<moe::Routing> routings;
  const Tensor y = layer.forward({in * 1, {}}, context, &routings).sum();
  std::vector<Tensor> roots = {y}, grads = {dy.clone()};
  for (const auto& routing : routings) {
    roots.insert(roots.end(), {routing.prob_sum_BE, routing.z_sum});
    const Tensor weight = at::arange(routing.prob_sum_BE.size(1)).to(at::kFloat) * 0.1;
    grads.insert(grads.end(), {weight.expand_as(routing.prob_sum_BE).clone(), at::full_like(routing.z_sum, 0.01)});
  }
  torch::autograd::backward(roots, grads);
  Result result{y.detach(), in.grad(), {}, {}, {}};
  if (ranks.group) result.traffic = ranks.group->traffic();
  if (!routings.empty()) result.chosen = routings[0].expert_ids_TK;
  for (const auto& entry : parameters.table()) result.grads[entry.name] = parameters.weight(entry.name).grad.clone();
  return result;
}

void fill(const ModelConfig& model, const std::vector<HeldParameter>& held, at::ScalarType dtype,
          ParameterStore& parameters) {
  for (const auto& p : held) {
    const Tensor values = slice_of(weight_of(model, p.spec, dtype), p).contiguous();
    parameters.write_master(parameters.entry(p.spec.name), 0,
                            {values.const_data_ptr<float>(), static_cast<size_t>(values.numel())});
  }
}

// Computes in one process in fp32, with the weights of the ranks.
Result run_alone(const ModelConfig& model, Case c) {
  const at::ScalarType dtype = c.dtype;
  Case alone = c;
  alone.tensor = alone.experts = 1, alone.sequence = false, alone.recompute = {};
  const RunConfig config = config_of(model, alone);
  const auto held = held_parameters(model, config.parallelism, Layout(config, 1), 0);
  const auto parameters = store_of(held, at::kFloat);
  fill(model, held, dtype, *parameters);
  const Inputs in = inputs(kBatch * c.experts, dtype);
  return run_layer(model, *parameters, alone, {}, nullptr, in.x.to(at::kFloat), in.dy.to(at::kFloat),
                   kBatch * c.experts);
}

struct Shared {
  std::vector<Result> results;
  std::vector<std::vector<HeldParameter>> held;
  std::unique_ptr<Layout> layout;
};

Shared run_shared(const ModelConfig& model, const Case& c) {
  const RunConfig config = config_of(model, c);
  const int size = c.tensor * c.experts;
  Shared shared{std::vector<Result>(static_cast<size_t>(size)), {}, std::make_unique<Layout>(config, size)};
  const Layout& layout = *shared.layout;
  for (int r = 0; r < size; ++r) shared.held.push_back(held_parameters(model, config.parallelism, layout, r));
  const Inputs in = inputs(kBatch * c.experts, c.dtype);
  comm::WorldOptions options;
  options.check = true;
  options.timeout = std::chrono::seconds(60);
  comm::run_ranks(
      size,
      [&](comm::World& world) {
        at::set_num_threads(1);
        const auto rank = static_cast<size_t>(world.rank());
        const auto group = [&](GroupKind kind) { return world.make_group(layout.groups(kind), group_name(kind)); };
        const auto tensor = group(GroupKind::kTensor), expert = group(GroupKind::kExpert);
        const TensorRanks ranks{tensor.get(), c.sequence};
        const auto parameters = store_of(shared.held[rank], c.dtype);
        fill(model, shared.held[rank], c.dtype, *parameters);
        const auto dispatch =
            c.experts > 1 ? std::make_shared<moe::Dispatch>(*expert, moe::DispatchOptions{c.dispatch, 2, 1}) : nullptr;
        const auto own = [&](const Tensor& x) {
          const Tensor sequences = x.narrow(0, layout.data_rank(world.rank()) * kBatch, kBatch);
          return c.sequence
                     ? sequences.reshape({1, -1, kHidden}).chunk(c.tensor, 1)[static_cast<size_t>(tensor->rank())]
                     : sequences;
        };
        shared.results[rank] =
            run_layer(model, *parameters, c, ranks, dispatch, own(in.x).contiguous(), own(in.dy).contiguous(), kBatch);
      },
      options);
  return shared;
}

// Returns y or dx of all tokens. Without sequence parallelism every tensor rank has the same bits.
Tensor joined(const Shared& shared, const Case& c, Tensor Result::*item) {
  std::vector<Tensor> parts;
  for (size_t r = 0; r < shared.results.size(); ++r) {
    const Tensor part = shared.results[r].*item;
    const auto first = r / static_cast<size_t>(c.tensor) * static_cast<size_t>(c.tensor);
    if (!c.sequence) {
      EXPECT_TRUE(at::equal(part, shared.results[first].*item)) << c.what << ", rank " << r;
    }
    if (c.sequence || r == first) parts.push_back(part.reshape({-1, kHidden}));
  }
  return at::cat(parts).view({-1, kSeqLen, kHidden});
}

// Returns a parameter's whole gradient, combined from the ranks' gradients as layout/holding.h defines.
Tensor whole_gradient(const Shared& shared, const Case& c, const std::string& name) {
  Tensor whole;
  for (size_t r = 0; r < shared.results.size(); ++r) {
    const Tensor& grad = shared.results[r].grads.at(name);
    const auto& held = shared.held[r];
    const auto p = std::ranges::find(held, name, [](const HeldParameter& h) { return h.spec.name; });
    if (!whole.defined()) whole = at::zeros(p->spec.shape, at::kFloat);
    const auto first = r / static_cast<size_t>(c.tensor) * static_cast<size_t>(c.tensor);
    if (p->replication == Replication::kReplicated && r != first) {
      EXPECT_TRUE(at::equal(grad, shared.results[first].grads.at(name))) << c.what << " " << name;
    } else {
      slice_of(whole, *p).add_(grad);
    }
  }
  return whole;
}

// A value is a sum of terms with up to a thousand roundings in fp32 (sums of 48, 24 and 12 terms, and exponentials,
// forward and backward, of both halves of the layer); the largest value of a tensor stands for the terms of all. In
// bf16 each of some 24 intermediate results is stored with one rounding more.
void expect_near(const Tensor& actual, const Tensor& expected, at::ScalarType dtype, const std::string& what) {
  const double largest = std::max(expected.abs().max().item<double>(), 1e-3);
  const double stored = dtype == at::kBFloat16 ? 24 * ops::unit_roundoff(dtype) : 0;
  const double allowed = largest * (stored + ops::error_bound(1, at::kFloat, 1000));
  EXPECT_LE((actual.to(at::kFloat) - expected).abs().max().item<double>(), allowed) << what;
}

void expect_as_alone(ModelConfig model, Case c) {
  // Near a bound, bf16's roundings decide if a gradient passes, so the test does not clip there.
  if (c.dtype == at::kBFloat16) model.clip_qkv = 0;
  c.what = model.family + ", tensor " + std::to_string(c.tensor) + ", experts " + std::to_string(c.experts) +
           ", kv heads " + std::to_string(model.kv_heads()) + (c.sequence ? ", sequence" : "") + ", " +
           c10::toString(c.dtype) + ", " + c.what;
  const Result alone = run_alone(model, c);
  const Shared shared = run_shared(model, c);
  expect_near(joined(shared, c, &Result::y), alone.y, c.dtype, c.what + " y");
  expect_near(joined(shared, c, &Result::dx), alone.dx, c.dtype, c.what + " dx");
  for (const auto& [name, grad] : alone.grads) {
    if (name.starts_with("model.layers."))
      expect_near(whole_gradient(shared, c, name), grad, c.dtype, c.what + " " + name);
  }
}

TEST(TensorParallelLayer, OfTwoThreeAndFourRanksIsThatOfOne) {
  for (const char* family : {"olmo", "olmoe", "llama", "qwen3", "qwen3_moe", "gpt2", "olmo2", "qwen2", "gpt_neox",
                             "gemma2", "gemma3_text", "qwen2_moe", "deepseek_v2"}) {
    for (const int tensor : {2, 3, 4}) {
      for (const bool sequence : {false, true}) {
        for (const auto dtype : {at::kFloat, at::kBFloat16}) {
          expect_as_alone(model_of(family), {.tensor = tensor, .sequence = sequence, .dtype = dtype});
        }
      }
    }
  }
}

TEST(TensorParallelLayer, SharesKeyHeadsAmongRanksWhereThereAreFewer) {
  for (const char* family : {"olmoe", "llama", "qwen3_moe"}) {
    for (const auto& [kv_heads, tensor] : {std::pair(2, 4), {1, 2}, {1, 3}, {3, 3}, {6, 2}}) {
      for (const bool sequence : {false, true}) {
        expect_as_alone(model_of(family, 12, kv_heads), {.tensor = tensor, .sequence = sequence});
      }
    }
  }
}

TEST(TensorParallelLayer, RunsBesideExpertRanksWithSharedExpertsUnderEachDispatch) {
  for (const char* family : {"olmoe", "qwen3_moe"}) {
    ModelConfig model = model_of(family);
    model.num_shared_experts = 1;
    for (const auto kind : {DispatchKind::kAllGather, DispatchKind::kAllToAll}) {
      for (const auto combine : {CombineWeights::kAfterDown, CombineWeights::kBeforeDown}) {
        for (const bool sequence : {false, true}) {
          const Case c{.experts = 2, .sequence = sequence, .dispatch = kind, .combine = combine};
          expect_as_alone(model, c);
        }
      }
    }
    expect_as_alone(model, {.experts = 3, .sequence = true, .dtype = at::kBFloat16});
  }
}

TEST(TensorParallelLayer, RecomputationKeepsEveryBitAndGathersButSumsNothingTwice) {
  constexpr auto kAll = RecomputeKinds{.norm = true, .attention = true, .moe = true};
  ModelConfig moe = model_of("olmoe", 12, 2);
  moe.num_shared_experts = 1;
  for (const ModelConfig& model : {moe, model_of("qwen3"), model_of("olmo2")}) {
    for (const bool sequence : {false, true}) {
      Case c{.tensor = 4, .sequence = sequence};
      const Shared plain = run_shared(model, c);
      for (const RecomputeKinds& kinds : {RecomputeKinds{.norm = true}, RecomputeKinds{.attention = true},
                                          RecomputeKinds{.moe = true}, RecomputeKinds{.layer = true}, kAll}) {
        c.recompute = kinds;
        const Shared again = run_shared(model, c);
        for (size_t r = 0; r < plain.results.size(); ++r) {
          const Result &a = again.results[r], &b = plain.results[r];
          EXPECT_TRUE(at::equal(a.y, b.y) && at::equal(a.dx, b.dx));
          for (const auto& [name, grad] : b.grads) EXPECT_TRUE(at::equal(a.grads.at(name), grad)) << name;
          if (kinds.layer) continue;
          auto reduced = [](const Result& x) { return x.traffic.calls_of; };
          const bool repeats_norm = kinds.attention && family_of(model).qk_norm == QkNorm::kWhole;
          EXPECT_EQ(reduced(a)[Collective::kAllReduce] - reduced(b)[Collective::kAllReduce], repeats_norm ? 1 : 0);
          EXPECT_EQ(reduced(a)[Collective::kReduceScatter], reduced(b)[Collective::kReduceScatter]);
          const int halves = kinds.norm ? 2 : (kinds.attention ? 1 : 0) + (kinds.moe ? 1 : 0);
          EXPECT_EQ(reduced(a)[Collective::kAllGather] - reduced(b)[Collective::kAllGather], sequence ? halves : 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace athanor::tensor_parallel_test
