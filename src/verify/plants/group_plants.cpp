// Faults of collectives, around a group's backend.

#include "comm/backend_decorator.h"
#include "verify/plants/rows.h"
#include "verify/plants/stage_decorator.h"

namespace athanor::inline verify::plants {
namespace {

// The data ranks gather two fp64 numbers of each rank for the gradient norm, and no other collective looks like it.
// Only the first rank's numbers are left.
class OneShardOfNorm : public Plant {
 public:
  Backend wrap_group(const comm::GroupOptions& options, Backend backend) override {
    struct Decorator : comm::BackendDecorator {
      Decorator(Inner inner, OneShardOfNorm& plant) : comm::BackendDecorator(std::move(inner)), plant_(plant) {}
      Work _allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& how) override {
        Work work = comm::BackendDecorator::_allgather_base(out, in, how);
        if (in.scalar_type() != at::kDouble || in.numel() != 2) return work;
        work->wait();
        out.view({getSize(), 2}).narrow(0, 1, getSize() - 1).zero_();
        plant_.count(true);
        return work;
      }
      OneShardOfNorm& plant_;
    };
    if (options.name != group_name(GroupKind::kData)) return backend;
    return c10::make_intrusive<Decorator>(std::move(backend), *this);
  }
};

// Finds the sums of attention among all sums of the tensor ranks. In a stage's forward there are sums of whole
// activations [B, T, D]: first that of the embedding, if the stage embeds, and then alternately those of attention and
// of the feed-forward. The stage reports when it is in forward, and the group's backend which sums are requested; both
// are the same on all ranks.
class AttentionSums : public Plant {
 public:
  /// @param times  how often each part is summed: 0 or 2.
  explicit AttentionSums(int times) : times_to_sum_(times) {}

  std::unique_ptr<Stage> wrap_stage(Stage& stage, const StageLayers& layers, const Mesh&) override {
    struct Decorator : StageDecorator {
      Decorator(Stage& stage, AttentionSums& plant, bool embeds)
          : StageDecorator(stage), plant_(plant), embeds_(embeds) {}
      Tensor forward(int microbatch, Tensor x, const Labels* labels) override {
        plant_.tokens_ = labels->targets.sizes().vec();
        plant_.sums_left_out_ = embeds_ ? 1 : 0;
        Tensor y = StageDecorator::forward(microbatch, std::move(x), labels);
        plant_.tokens_.clear();
        return y;
      }
      AttentionSums& plant_;
      bool embeds_;
    };
    return std::make_unique<Decorator>(stage, *this, layers.embeds);
  }

  Backend wrap_group(const comm::GroupOptions& options, Backend backend) override {
    if (options.name != group_name(GroupKind::kTensor)) return backend;
    return c10::make_intrusive<Sums>(std::move(backend), *this);
  }

 private:
  struct Sums : comm::BackendDecorator {
    Sums(Inner inner, AttentionSums& plant) : comm::BackendDecorator(std::move(inner)), plant_(plant) {}

    Work allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& how) override {
      if (!plant_.is_attention(tensors.at(0))) return inner().allreduce(tensors, how);
      if (plant_.times_to_sum_ == 0) return c10::make_intrusive<comm::NoWork>();
      inner().allreduce(tensors, how)->wait();
      return inner().allreduce(tensors, how);
    }
    Work _reduce_scatter_base(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& how) override {
      if (!plant_.is_attention(in)) return inner()._reduce_scatter_base(out, in, how);
      if (plant_.times_to_sum_ == 0) {
        out.view({-1}).copy_(in.view({-1}).narrow(0, getRank() * out.numel(), out.numel()));
        return c10::make_intrusive<comm::NoWork>();
      }
      std::vector<at::Tensor> tensors{in};
      inner().allreduce(tensors)->wait();
      return inner()._reduce_scatter_base(out, in, how);
    }
    AttentionSums& plant_;
  };

  // Counts a sum. Returns whether it is one of attention.
  bool is_attention(const Tensor& x) {
    if (tokens_.empty() || x.dim() != 3 || x.size(0) != tokens_[0] || x.size(1) != tokens_[1]) return false;
    const bool attention = sums_left_out_ == 0;
    sums_left_out_ = attention ? 1 : 0;
    count(attention);
    return attention;
  }

  int times_to_sum_;
  std::vector<int64_t> tokens_;  // [B, T] of the microbatch that is in forward; empty if there is none
  int sums_left_out_ = 0;        // until the next sum of attention
};

}  // namespace

std::vector<Row> group_plants() {
  return {
      {"norm.one_shard", make_of<OneShardOfNorm>},
      {"tensor.doubled_all_reduce", make_of<AttentionSums, 2>},
      {"tensor.missing_all_reduce", make_of<AttentionSums, 0>},
  };
}

}  // namespace athanor::inline verify::plants
