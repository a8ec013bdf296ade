// Faults around stages: these change the inputs of a microbatch on the way to a stage, or its results on the way back.

#include "kernels/cross_entropy.h"
#include "verify/plants/rows.h"
#include "verify/plants/stage_decorator.h"

namespace athanor::inline verify::plants {
namespace {

/// Returns whether it changed them.
using ChangeLabels = bool (*)(Labels& labels, const StageLayers& layers, const Mesh& mesh);
using ChangeParts = bool (*)(LossParts& parts, const Mesh& mesh);

class WrongLabels : public Plant {
 public:
  explicit WrongLabels(ChangeLabels change) : change_(change) {}

  std::unique_ptr<Stage> wrap_stage(Stage& stage, const StageLayers& layers, const Mesh& mesh) override {
    struct Decorator : StageDecorator {
      Decorator(Stage& stage, WrongLabels& plant, const StageLayers& layers, const Mesh& mesh)
          : StageDecorator(stage), plant_(plant), layers_(layers), mesh_(mesh) {}
      Tensor forward(int microbatch, Tensor x, const Labels* labels) override {
        Labels wrong = *labels;
        plant_.count(plant_.change_(wrong, layers_, mesh_));
        return StageDecorator::forward(microbatch, std::move(x), &wrong);
      }
      WrongLabels& plant_;
      StageLayers layers_;
      const Mesh& mesh_;
    };
    return std::make_unique<Decorator>(stage, *this, layers, mesh);
  }

 private:
  ChangeLabels change_;
};

class WrongParts : public Plant {
 public:
  explicit WrongParts(ChangeParts change) : change_(change) {}

  std::unique_ptr<Stage> wrap_stage(Stage& stage, const StageLayers&, const Mesh& mesh) override {
    struct Decorator : StageDecorator {
      Decorator(Stage& stage, WrongParts& plant, const Mesh& mesh)
          : StageDecorator(stage), plant_(plant), mesh_(mesh) {}
      LossParts take_parts(int microbatch) override {
        LossParts parts = StageDecorator::take_parts(microbatch);
        plant_.count(plant_.change_(parts, mesh_));
        return parts;
      }
      WrongParts& plant_;
      const Mesh& mesh_;
    };
    return std::make_unique<Decorator>(stage, *this, mesh);
  }

 private:
  ChangeParts change_;
};

bool lose_balancing(Labels& labels, const StageLayers& layers, const Mesh&) {
  if (layers.has_head) return false;
  const bool had = labels.aux_scale != 0 || labels.z_scale != 0;
  labels.aux_scale = labels.z_scale = 0;
  return had;
}

bool lose_z_loss(Labels& labels, const StageLayers&, const Mesh& mesh) {
  if (mesh.layout().tensor() == 1 || labels.z_scale == 0) return false;
  labels.z_scale = 0;
  return true;
}

// A row is a target minus the rank's first row. Row 0 belongs to the first rank, and stays.
bool shift_vocabulary(Labels& labels, const StageLayers& layers, const Mesh& mesh) {
  if (!layers.has_head || mesh.group(GroupKind::kTensor).rank() != 1) return false;
  const Tensor& ids = labels.targets;
  labels.targets = at::where(ids > 0, ids - 1, ids);
  return true;
}

bool count_twice(LossParts& parts, const Mesh&) {
  if (!parts.routers.defined()) return false;
  parts.routers += RouterCounts(parts.routers);
  return true;
}

bool divide_loss(LossParts& parts, const Mesh& mesh) {
  parts.sums[LossParts::kLoss].div_(mesh.layout().data());
  return mesh.layout().data() > 1;
}

}  // namespace

std::vector<Row> stage_plants() {
  return {
      {"loss.divided_twice", make_of<WrongParts, divide_loss>},
      {"pipeline.aux_lost", make_of<WrongLabels, lose_balancing>},
      {"router.count_twice", make_of<WrongParts, count_twice>},
      {"router.z_loss_lost_on_tensor_ranks", make_of<WrongLabels, lose_z_loss>},
      {"tensor.vocabulary_offset", make_of<WrongLabels, shift_vocabulary>},
  };
}

}  // namespace athanor::inline verify::plants
