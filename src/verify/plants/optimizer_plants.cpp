// Faults in what ranks do together for an optimizer, around the backends of the groups that carry it: LAMB's sums of
// squares (optim/tensor_sums.h), and Muon's exchanges with the homes of matrices (optim/home_matrices.h).

#include <algorithm>
#include <utility>

#include "comm/backend_decorator.h"
#include "layout/optimizer_state.h"
#include "verify/plants/rows.h"

namespace athanor::inline verify::plants {
namespace {

bool updates_with(const TrainState& state, const std::string& optimizer) {
  return std::ranges::any_of(plan_optimizers(state.config.optimizer).optimizers,
                             [&](const auto& each) { return each.name == optimizer; });
}

bool is_group(const comm::GroupOptions& options, std::initializer_list<GroupKind> kinds) {
  return std::ranges::any_of(kinds, [&](GroupKind kind) { return options.name == group_name(kind); });
}

// LAMB adds up two fp64 numbers of each matrix of the model, over the model ranks and then over the data ranks, and no
// other sum looks like it.
class LambSums : public Plant {
 public:
  void watch(TrainState& state) override {
    if (!updates_with(state, "lamb")) return;
    num_matrices_ = 0;
    experts_.clear();
    for (const ParameterSpec& spec : make_inventory(state.config.model)) {
      const int64_t matrices = count_matrices(spec);
      if (matrices > 1) experts_.emplace_back(num_matrices_, matrices);
      num_matrices_ += matrices;
    }
  }

  Backend wrap_group(const comm::GroupOptions& options, Backend backend) override {
    struct Decorator : comm::BackendDecorator {
      Decorator(Inner inner, LambSums& plant) : comm::BackendDecorator(std::move(inner)), plant_(plant) {}
      Work allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& how) override {
        const at::Tensor& sums = tensors.at(0);
        if (!plant_.are_sums(sums)) return inner().allreduce(tensors, how);
        if (!plant_.sums_are_taken()) return c10::make_intrusive<comm::NoWork>();
        Work work = inner().allreduce(tensors, how);
        work->wait();
        plant_.change(sums);
        return work;
      }
      LambSums& plant_;
    };
    if (!is_group(options, {GroupKind::kData, GroupKind::kModel})) return backend;
    return c10::make_intrusive<Decorator>(std::move(backend), *this);
  }

 protected:
  /// Whether the sum over the ranks is taken at all.
  virtual bool sums_are_taken() { return true; }
  /// Changes the sums, [matrices of the model, 2].
  virtual void change(const Tensor& /*sums*/) {}
  /// First matrix and number of those of each parameter that stacks experts.
  const std::vector<std::pair<int64_t, int64_t>>& experts() const { return experts_; }

 private:
  bool are_sums(const Tensor& x) const {
    return num_matrices_ > 0 && x.scalar_type() == at::kDouble && x.dim() == 2 && x.size(0) == num_matrices_ &&
           x.size(1) == 2;
  }

  int64_t num_matrices_ = 0;  // 0: no parameter has LAMB
  std::vector<std::pair<int64_t, int64_t>> experts_;
};

class OwnPartOfNorms : public LambSums {
  bool sums_are_taken() override {
    count(true);
    return false;
  }
};

// The mean gives the same ratio as the sum, also if it is taken after the sum over the model ranks and again after that
// over the data ranks.
class RatioOfAllExperts : public LambSums {
  void change(const Tensor& sums) override {
    for (const auto& [first, matrices] : experts()) {
      const Tensor of_experts = sums.narrow(0, first, matrices);
      of_experts.copy_(of_experts.mean(0, /*keepdim=*/true).expand_as(of_experts));
      count(true);
    }
  }
};

// Changes the exchanges of a group, which alternate: values to the homes, results from them. No others of data ranks or
// of tensor ranks are of fp32 in one dim.
class HomeExchanges : public Plant {
 public:
  void watch(TrainState& state) override { acts_ = updates_with(state, "muon"); }

  Backend wrap_group(const comm::GroupOptions& options, Backend backend) override {
    struct Decorator : comm::BackendDecorator {
      Decorator(Inner inner, HomeExchanges& plant) : comm::BackendDecorator(std::move(inner)), plant_(plant) {}
      Work alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_rows, std::vector<int64_t>& in_rows,
                         const c10d::AllToAllOptions& how) override {
        if (!plant_.acts_ || in.scalar_type() != at::kFloat || in.dim() != 1)
          return inner().alltoall_base(out, in, out_rows, in_rows, how);
        const bool to_homes = std::exchange(to_homes_, !to_homes_);
        if (!to_homes) plant_.before_results(in, last_results_, getRank());
        Work work = inner().alltoall_base(out, in, out_rows, in_rows, how);
        if (!to_homes) return work;
        work->wait();
        plant_.after_values(out, out_rows);
        return work;
      }
      HomeExchanges& plant_;
      bool to_homes_ = true;
      Tensor last_results_;
    };
    if (!is_group(options, {GroupKind::kData, GroupKind::kTensor})) return backend;
    return c10::make_intrusive<Decorator>(std::move(backend), *this);
  }

 protected:
  /// Changes what a home has received: `counts` values of each rank.
  virtual void after_values(const Tensor& /*values*/, const std::vector<int64_t>& /*counts*/) {}
  /// Changes what rank `rank` of the group is about to return. @param last  what an earlier call has left there.
  virtual void before_results(const Tensor& /*results*/, Tensor& /*last*/, int /*rank*/) {}

 private:
  bool acts_ = false;
};

class CrossedParts : public HomeExchanges {
  void after_values(const Tensor& values, const std::vector<int64_t>& counts) override {
    std::vector<Tensor> parts;
    for (const Tensor& part : values.split_with_sizes(counts))
      if (part.numel() > 0) parts.push_back(part);
    if (parts.size() < 2) return;
    std::ranges::reverse(parts);
    values.copy_(at::cat(parts));
    count(true);
  }
};

class StaleHome : public HomeExchanges {
  void before_results(const Tensor& results, Tensor& last, int rank) override {
    if (rank != 0 || results.numel() == 0) return;
    const Tensor now = results.clone();
    if (last.defined()) {
      results.copy_(last);
      count(true);
    }
    last = now;
  }
};

}  // namespace

std::vector<Row> optimizer_plants() {
  return {
      {"lamb.own_part_of_norm", make_of<OwnPartOfNorms>},
      {"lamb.ratio_of_all_experts", make_of<RatioOfAllExperts>},
      {"muon.crossed_parts", make_of<CrossedParts>},
      {"muon.stale_home", make_of<StaleHome>},
  };
}

}  // namespace athanor::inline verify::plants
