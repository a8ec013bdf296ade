// Faults in Sophia-G's second backward: labels and gradients that a rank gets wrong, around its stages, and Hessians
// that it changes after it has learned from these gradients.

#include "optim/sophiag.h"
#include "verify/plants/rows.h"
#include "verify/plants/stage_decorator.h"

namespace athanor::inline verify::plants {
namespace {

const SophiaG* find_sophiag(const TrainState& state) {
  for (const auto& each : state.optimizer.set.optimizers())
    if (const auto* found = dynamic_cast<const SophiaG*>(each.get())) return found;
  return nullptr;
}

// Changes Hessians when a step has learned from its second backward: at the beginning of the first backward, since
// observers see nothing of the second.
class WrongHessians : public Plant {
 public:
  void watch(TrainState& state) override {
    const SophiaG* sophiag = find_sophiag(state);
    if (!sophiag || state.model.mesh.layout().data() == 1) return;
    struct Changing : Observer {
      Changing(WrongHessians& owner, TrainState& watched, const SophiaG& of)
          : plant(owner), state(watched), sophiag(of) {}
      void observe(const Observation&) override {}
      void begin_gradients() override {
        if (const Tensor& hessian = sophiag.estimated(); hessian.defined())
          plant.count(plant.change(state, hessian, sophiag.state("hessian")));
      }
      WrongHessians& plant;
      TrainState& state;
      const SophiaG& sophiag;
    };
    state.observers.add(std::make_shared<Changing>(*this, state, *sophiag));
  }

 protected:
  /// Changes the Hessians of this rank's elements. @param before  what they were before the second backward.
  /// @return whether it changed them.
  virtual bool change(const TrainState& state, const Tensor& hessian, const Tensor& before) = 0;
};

// The second data rank learns from the first of its second backwards alone.
class StaleHessian : public WrongHessians {
  bool change(const TrainState& state, const Tensor& hessian, const Tensor& before) override {
    if (state.position.step == 0 || state.model.mesh.data_rank() != 1) return false;
    hessian.copy_(before);
    return true;
  }
};

// The squares are multiplied by the number of a rank's targets, in place of that of the batch.
class TargetsOfOneRank : public WrongHessians {
  bool change(const TrainState& state, const Tensor& hessian, const Tensor& before) override {
    const Tensor kept = before * state.config.optimizer.betas[1];
    hessian.sub_(kept).div_(state.model.mesh.layout().data()).add_(kept);
    return true;
  }
};

// Changes the labels of a microbatch of the second backward in the last stage.
class WrongDraws : public Plant {
 public:
  using Change = bool (*)(Labels& labels, const Mesh& mesh);
  explicit WrongDraws(Change change) : change_(change) {}

  std::unique_ptr<Stage> wrap_stage(Stage& stage, const StageLayers& layers, const Mesh& mesh) override {
    struct Decorator : StageDecorator {
      Decorator(Stage& stage, WrongDraws& owner, const Mesh& ranks)
          : StageDecorator(stage), plant(owner), mesh(ranks) {}
      Tensor forward(int microbatch, Tensor x, const Labels* labels) override {
        Labels wrong = *labels;
        if (wrong.draw.draws) plant.count(plant.change_(wrong, mesh));
        return StageDecorator::forward(microbatch, std::move(x), &wrong);
      }
      WrongDraws& plant;
      const Mesh& mesh;
    };
    if (!layers.has_head) return nullptr;
    return std::make_unique<Decorator>(stage, *this, mesh);
  }

 private:
  Change change_;
};

bool draw_from_own_seed(Labels& labels, const Mesh& mesh) {
  labels.draw.key += static_cast<uint64_t>(mesh.data_rank());
  return mesh.data_rank() > 0;
}

bool scale_by_own_targets(Labels& labels, const Mesh& mesh) {
  labels.loss_scale *= mesh.layout().data();
  return mesh.layout().data() > 1;
}

}  // namespace

std::vector<Row> sophiag_plants() {
  return {
      {"sophiag.own_seed", make_of<WrongDraws, draw_from_own_seed>},
      {"sophiag.scale_of_one_rank", make_of<WrongDraws, scale_by_own_targets>},
      {"sophiag.stale_hessian", make_of<StaleHessian>},
      {"sophiag.targets_of_one_rank", make_of<TargetsOfOneRank>},
  };
}

}  // namespace athanor::inline verify::plants
