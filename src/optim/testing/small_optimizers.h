#pragma once
// Small forms of three optimizers whose needs differ from AdamW's, for tests of the interface that they stand behind:
// LAMB (norms of whole tensors), Muon (whole matrices) and Sophia (a second backward). Plain loops, one thread.

#include <algorithm>
#include <cmath>
#include <vector>

#include "optim/adamw.h"
#include "optim/optimizer_set.h"
#include "optim/testing/whole_matrices.h"

namespace athanor::inline optim::small {

constexpr float kBeta1 = 0.9f, kBeta2 = 0.99f, kEps = 1e-6f;

inline std::span<float> values_of(const Tensor& flat, int64_t begin, int64_t size) {
  return {flat.data_ptr<float>() + begin, static_cast<size_t>(size)};
}

/// Subtracts `step` from the master, sets the gradient to zero, and returns how many weights changed.
inline int64_t subtract(ParameterStore& store, FlatRange range,
                        const std::function<float(size_t i, float master)>& step) {
  std::vector<float> master(static_cast<size_t>(range.size()));
  store.read_master(range.begin, master);
  for (size_t i = 0; i < master.size(); ++i) master[i] -= step(i, master[i]);
  const Tensor weights = store.compute().narrow(0, range.begin, range.size()), before = weights.clone();
  store.write_master(range.begin, master);
  store.grad().narrow(0, range.begin, range.size()).zero_();
  return weights.ne(before).sum().item<int64_t>();
}

/// You et al. 2020: Adam's update, scaled for each matrix by the ratio of the norms of weights and update. Two passes:
/// the first leaves the update in the gradient's memory. The ratio is a running mean, kept for each matrix, so that
/// state of this extent matters.
class Lamb : public Optimizer {
 public:
  static OptimizerDeclaration declare() {
    return {.name = "lamb",
            .state = {{"exp_avg"},
                      {"exp_avg_sq"},
                      {"trust_ratio", StateType::kFloat32, StateKind::Extent::kMatrix},
                      {"updates", StateType::kFloat32, StateKind::Extent::kScalar}},
            .needs = {.tensor_norms = true}};
  }
  Lamb(OptimizedParameters parameters, const TensorSums& sums)
      : Optimizer(declare(), std::move(parameters)), sums_(sums) {}

  void begin(const Update& update) override {
    ParameterStore& store = parameters().store();
    parameters().for_each_owned({0, store.flat_size()}, [&](const auto& segment, FlatRange range, int64_t begin) {
      const auto m = values_of(state("exp_avg"), begin, range.size()),
                 v = values_of(state("exp_avg_sq"), begin, range.size()),
                 g = values_of(store.grad(), range.begin, range.size());
      std::vector<float> w(m.size());
      store.read_master(range.begin, w);
      const auto count = static_cast<float>(update.step - segment.since);
      const float c1 = 1 - std::pow(kBeta1, count), c2 = 1 - std::pow(kBeta2, count);
      for (size_t i = 0; i < m.size(); ++i) {
        const float scaled = g[i] * static_cast<float>(update.grad_scale);
        m[i] = kBeta1 * m[i] + (1 - kBeta1) * scaled;
        v[i] = kBeta2 * v[i] + (1 - kBeta2) * scaled * scaled;
        g[i] = m[i] / c1 / (std::sqrt(v[i] / c2) + kEps) + static_cast<float>(segment.weight_decay) * w[i];
      }
    });
    const Tensor squares = at::zeros({sums_.num_matrices(), 2}, at::kDouble);
    auto square = squares.accessor<double, 2>();
    for (const Bucket& bucket : store.buckets()) {
      sums_.for_each_matrix(sums_.counted(bucket), [&](const BucketEntry&, int64_t matrix, FlatRange piece) {
        std::vector<float> w(static_cast<size_t>(piece.size()));
        store.read_master(piece.begin, w);
        const auto u = values_of(store.grad(), piece.begin, piece.size());
        for (size_t i = 0; i < w.size(); ++i) {
          square[matrix][0] += static_cast<double>(w[i]) * static_cast<double>(w[i]);
          square[matrix][1] += static_cast<double>(u[i]) * static_cast<double>(u[i]);
        }
      });
    }
    sums_.add_up(squares);
    for (const BucketEntry* entry : parameters().entries()) {
      for (int64_t m = 0; m < count_matrices(entry->replication, entry->extent); ++m) {
        const auto norms = square[sums_.first_matrix(*entry) + m];
        const double ratio = norms[0] > 0 && norms[1] > 0 ? std::sqrt(norms[0] / norms[1]) : 1;
        float& mean = values_of(state("trust_ratio"), parameters().first_matrix(*entry) + m, 1)[0];
        mean += (static_cast<float>(ratio) - mean) / (updates() + 1);
      }
    }
    state("updates").add_(1);
  }

  int64_t apply(const Update& update, FlatRange range) override {
    ParameterStore& store = parameters().store();
    int64_t changed = 0;
    parameters().for_each_owned(range, [&](const auto& segment, FlatRange owned, int64_t) {
      const auto lr = static_cast<float>(update.lr * segment.lr_scale);
      sums_.for_each_matrix(owned, [&](const BucketEntry& entry, int64_t matrix, FlatRange piece) {
        const int64_t here = parameters().first_matrix(entry) + matrix - sums_.first_matrix(entry);
        const float ratio = values_of(state("trust_ratio"), here, 1)[0];
        const Tensor u = store.grad().narrow(0, piece.begin, piece.size()).clone();
        const float* step = u.const_data_ptr<float>();
        changed += subtract(store, piece, [&](size_t i, float) { return lr * ratio * step[i]; });
      });
    });
    return changed;
  }

 private:
  float updates() const { return state("updates").item<float>(); }

  const TensorSums& sums_;
};

/// Jordan 2024 in its idea: momentum, then the nearest orthogonal matrix by Newton and Schulz's iteration
/// X ← 1.5 X − 0.5 X Xᵀ X from X / ‖X‖, each step of which enlarges an error by 1.5 at most.
class Muon : public Optimizer {
 public:
  static constexpr int kIterations = 5;
  static OptimizerDeclaration declare() { return {.name = "muon", .state = {{"momentum"}}}; }
  /// Collective as WholeMatrices.
  Muon(OptimizedParameters parameters, const ShardPlan& shards)
      : Optimizer(declare(), std::move(parameters)), matrices_(this->parameters().store(), shards) {}

  static Tensor orthogonal(const Tensor& matrix) {
    Tensor x = matrix / (matrix.norm() + kEps);
    for (int i = 0; i < kIterations; ++i) x = 1.5 * x - 0.5 * at::mm(at::mm(x, x.t()), x);
    return x;
  }

  void begin(const Update& update) override {
    ParameterStore& store = parameters().store();
    const auto is_own = [&](const BucketEntry& entry) {
      return std::ranges::find(parameters().entries(), &entry) != parameters().entries().end();
    };
    for (const Bucket& bucket : store.buckets()) {
      matrices_.gather(
          bucket, is_own, [&](FlatRange owned, std::span<float> out) { add_momentum(update, owned, out); },
          [&](const BucketEntry& entry, const Tensor& whole) {
            const Tensor each = whole.dim() == 3 ? whole : whole.unsqueeze(0);
            for (int64_t m = 0; m < each.size(0); ++m) each[m].copy_(orthogonal(each[m].clone()));
            parameters().for_each_owned(entry.range(), [&](const auto&, FlatRange owned, int64_t) {
              WholeMatrices::take(entry, whole, owned, values_of(store.grad(), owned.begin, owned.size()));
            });
          });
    }
  }

  int64_t apply(const Update& update, FlatRange range) override {
    ParameterStore& store = parameters().store();
    int64_t changed = 0;
    parameters().for_each_owned(range, [&](const auto& segment, FlatRange owned, int64_t) {
      const auto lr = static_cast<float>(update.lr * segment.lr_scale),
                 decay = static_cast<float>(segment.weight_decay);
      const Tensor u = store.grad().narrow(0, owned.begin, owned.size()).clone();
      const float* step = u.const_data_ptr<float>();
      changed += subtract(store, owned, [&](size_t i, float w) { return lr * (step[i] + decay * w); });
    });
    return changed;
  }

 private:
  void add_momentum(const Update& update, FlatRange owned, std::span<float> out) {
    const auto m = values_of(state("momentum"), parameters().state_begin(owned).value(), owned.size()),
               g = values_of(parameters().store().grad(), owned.begin, owned.size());
    for (size_t i = 0; i < m.size(); ++i) out[i] = m[i] = kBeta1 * m[i] + g[i] * static_cast<float>(update.grad_scale);
  }

  WholeMatrices matrices_;
};

/// Liu et al. 2023 in its idea: the squared gradient of another loss stands for the diagonal of the Hessian, and is
/// taken at every second step. The mean gradient divided by it is clipped.
class Sophia : public Optimizer {
 public:
  static constexpr int64_t kInterval = 2;
  static constexpr float kClip = 1;
  static OptimizerDeclaration declare() {
    return {.name = "sophia",
            .state = {{"exp_avg", StateType::kFloat32}, {"hessian", StateType::kBFloat16}},
            .needs = {.second_backward = true}};
  }
  Sophia(OptimizedParameters parameters, OtherLabels labels)
      : Optimizer(declare(), std::move(parameters)), labels_(std::move(labels)) {}

  std::optional<OtherLabels> second_backward(int64_t step, bool /*is_first*/) const override {
    return step % kInterval == 1 ? std::optional(labels_) : std::nullopt;
  }
  void learn_from_second(int64_t /*step*/, int64_t /*num_targets*/) override {
    const Tensor& grad = parameters().store().grad();
    parameters().for_each_owned({0, grad.size(0)}, [&](const auto&, FlatRange range, int64_t begin) {
      const Tensor g = grad.narrow(0, range.begin, range.size()), h = state("hessian").narrow(0, begin, range.size());
      h.copy_(h.to(at::kFloat) * kBeta2 + g * g * (1 - kBeta2));
    });
  }

  int64_t apply(const Update& update, FlatRange range) override {
    ParameterStore& store = parameters().store();
    int64_t changed = 0;
    parameters().for_each_owned(range, [&](const auto& segment, FlatRange owned, int64_t begin) {
      const auto m = values_of(state("exp_avg"), begin, owned.size()),
                 g = values_of(store.grad(), owned.begin, owned.size());
      const Tensor hessian = state("hessian").narrow(0, begin, owned.size()).to(at::kFloat);
      const float* h = hessian.const_data_ptr<float>();
      for (size_t i = 0; i < m.size(); ++i)
        m[i] = kBeta1 * m[i] + (1 - kBeta1) * g[i] * static_cast<float>(update.grad_scale);
      const auto lr = static_cast<float>(update.lr * segment.lr_scale),
                 decay = static_cast<float>(segment.weight_decay);
      changed += subtract(store, owned, [&](size_t i, float w) {
        return lr * (std::clamp(m[i] / std::max(h[i], kEps), -kClip, kClip) + decay * w);
      });
    });
    return changed;
  }

 private:
  OtherLabels labels_;
};

/// Returns a label of the vocabulary that a counter gives.
inline int64_t drawn_label(int64_t sequence, int64_t position, int64_t label, int64_t vocabulary) {
  const auto mixed = static_cast<uint64_t>(sequence * 1000003 + position * 10007 + label) * 0x9E3779B97F4A7C15u;
  return static_cast<int64_t>((mixed >> 33) % static_cast<uint64_t>(vocabulary));
}

/// Returns a setup of the small optimizer of that name. Muon updates the matrices of the layers, by role; AdamW updates
/// the rest, with the norms at half the rate.
inline OptimizerSetup make_setup(const std::string& name, const OptimizerConfig& config, OtherLabels labels) {
  const ParameterGroup norms{.patterns = {"*norm.weight"}, .lr_scale = 0.5, .optimizer = "adamw"};
  OptimizerSetup setup;
  if (name == "muon") {
    const ParameterGroup matrices{
        .roles = {Role::kQuery, Role::kKey, Role::kValue, Role::kAttentionOut, Role::kRouter, Role::kGate, Role::kUp,
                  Role::kDown, Role::kExpertGate, Role::kExpertUp, Role::kExpertDown},
        .weight_decay = 0.1,
        .optimizer = "muon"};
    setup.plan = {{matrices, norms, {.weight_decay = 0.1}}, {Muon::declare(), declare_optimizer(config.name)}};
  } else {
    const OptimizerDeclaration declared = name == "lamb" ? Lamb::declare() : Sophia::declare();
    setup.plan = {{norms, {.weight_decay = 0.1, .optimizer = name}}, {declared, declare_optimizer(config.name)}};
  }
  setup.make = [config, labels = std::move(labels)](const OptimizerDeclaration& declared,
                                                    OptimizedParameters parameters,
                                                    const OptimizerServices& services) -> std::unique_ptr<Optimizer> {
    if (declared.name == "lamb") return std::make_unique<Lamb>(std::move(parameters), *services.sums);
    if (declared.name == "muon") return std::make_unique<Muon>(std::move(parameters), *services.plan);
    if (declared.name == "sophia") return std::make_unique<Sophia>(std::move(parameters), labels);
    return std::make_unique<AdamW>(config, std::move(parameters));
  };
  return setup;
}

}  // namespace athanor::inline optim::small
