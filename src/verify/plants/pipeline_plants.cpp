// Faults of the messages between stages.

#include "base/error.h"
#include "comm/backend_decorator.h"
#include "verify/plants/rows.h"
#include "verify/plants/stage_decorator.h"

namespace athanor::inline verify::plants {
namespace {

// Keeps 4 significant bits, which is as far from bfloat16 as bfloat16 is from a type with 12; rounds to nearest, ties
// to even.
Tensor without_four_bits(const Tensor& x) {
  const Tensor bits = x.view(at::kShort).to(at::kInt).bitwise_and(0xFFFF);
  const Tensor even = bits.bitwise_right_shift(4).bitwise_and(1);
  return (bits + even + 7).bitwise_and(0xFFF0).to(at::kShort).view(at::kBFloat16);
}

class WrongType : public Plant {
 public:
  void watch(TrainState& state) override {
    struct Rounding : Observer {
      explicit Rounding(WrongType& owner) : plant(owner) {}
      void observe(const Observation& o) override {
        if (o.phase != Observation::Phase::kForward || !o.place.starts_with("pipeline.to_stage.")) return;
        const bool narrow = o.tensor.scalar_type() == at::kBFloat16;
        o.tensor.copy_(narrow ? without_four_bits(o.tensor.contiguous()) : o.tensor.to(at::kBFloat16));
        plant.count(true);
      }
      WrongType& plant;
    };
    state.observers.add(std::make_shared<Rounding>(*this));
  }
};

// The first hidden states of the first stage wait until its second ones are there, and are sent after them.
class SwappedMicrobatches : public Plant {
 public:
  std::unique_ptr<Stage> wrap_stage(Stage& stage, const StageLayers& layers, const Mesh& mesh) override {
    struct Decorator : StageDecorator {
      Decorator(Stage& stage, SwappedMicrobatches& plant) : StageDecorator(stage), plant_(plant) {}
      Tensor forward(int microbatch, Tensor x, const Labels* labels) override {
        Tensor y = StageDecorator::forward(microbatch, std::move(x), labels);
        plant_.next_ = microbatch;  // the pipeline sends it before anything else
        return y;
      }
      SwappedMicrobatches& plant_;
    };
    if (!layers.embeds || layers.has_head || mesh.layout().microbatches() < 2) return nullptr;
    return std::make_unique<Decorator>(stage, *this);
  }

  Backend wrap_group(const comm::GroupOptions& options, Backend backend) override {
    if (options.name != group_name(GroupKind::kPipeline)) return backend;
    return c10::make_intrusive<Sends>(std::move(backend), *this);
  }

 private:
  // The work of a message that is not sent yet.
  struct Later : c10d::Work {
    bool isCompleted() override { return work && work->isCompleted(); }
    bool isSuccess() const override { return work && work->isSuccess(); }
    void synchronize() override {}
    bool wait(std::chrono::milliseconds timeout) override {
      ATHANOR_ASSERT(work);
      return work->wait(timeout);
    }
    c10::intrusive_ptr<c10d::Work> work;
  };

  struct Sends : comm::BackendDecorator {
    Sends(Inner inner, SwappedMicrobatches& plant) : comm::BackendDecorator(std::move(inner)), plant_(plant) {}

    Work send(std::vector<at::Tensor>& tensors, int to, int tag) override {
      const int microbatch = std::exchange(plant_.next_, kNone);
      if (microbatch == 0) {
        held_ = tensors;
        later_ = c10::make_intrusive<Later>();
        return later_;
      }
      Work work = inner().send(tensors, to, tag);
      if (microbatch == 1) {
        later_->work = inner().send(held_, to, tag);
        held_.clear();
        plant_.count(true);
      }
      return work;
    }

    SwappedMicrobatches& plant_;
    std::vector<at::Tensor> held_;
    c10::intrusive_ptr<Later> later_;
  };

  static constexpr int kNone = -1;
  int next_ = kNone;  // the microbatch whose hidden states are sent next
};

}  // namespace

std::vector<Row> pipeline_plants() {
  return {
      {"pipeline.microbatch_swapped", make_of<SwappedMicrobatches>},
      {"pipeline.wrong_dtype", make_of<WrongType>},
  };
}

}  // namespace athanor::inline verify::plants
