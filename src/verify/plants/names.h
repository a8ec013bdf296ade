#pragma once
// The faults that `athanor verify --plant` puts into a run, to check that verify finds and names them: what each does,
// and what a layout needs for it to make a difference. The front end shows this table, so it needs no libtorch.

#include <string_view>

namespace athanor::inline verify::plants {

struct PlantName {
  std::string_view name;
  std::string_view does;
  std::string_view needs;           ///< what a layout must have so that the fault changes a number
  std::string_view optimizer = "";  ///< the optimizer.name that a run must have; "": any
};

inline constexpr PlantName kPlantNames[] = {
    {"grad.crossed_buckets", "the sums of two buckets of one size change places", "two buckets of one group and size"},
    {"grad.doubled_reduction", "the first bucket is summed twice", "two data ranks"},
    {"grad.missing_reduction", "the first bucket's gradients of other ranks are lost", "two data ranks"},
    {"grad.router_unsynchronised", "the routers' gradients of other ranks are lost", "experts, two data ranks"},
    {"grad.wrong_group", "experts are summed over ranks that hold others", "two expert ranks"},
    {"grad.wrong_scale", "the last bucket is averaged", "two data ranks"},
    {"lamb.own_part_of_norm", "norms for LAMB's ratios are those of a rank's own part", "optimizer lamb, two ranks",
     "lamb"},
    {"lamb.ratio_of_all_experts", "an expert has the ratio of all experts of its tensor",
     "optimizer lamb, experts, two ranks", "lamb"},
    {"loss.divided_twice", "the loss is divided by the data ranks", "two data ranks"},
    {"muon.crossed_parts", "a home takes the parts of momentum of its ranks for those of others",
     "optimizer muon, three data ranks or three tensor ranks", "muon"},
    {"muon.stale_home", "the first home returns to the others the results of the step before",
     "optimizer muon, two data ranks or two tensor ranks, two steps", "muon"},
    {"norm.one_shard", "the gradient norm is that of the first data rank's part", "two data ranks"},
    {"pipeline.aux_lost", "balancing losses of all stages but the last are counted and not learned from",
     "experts, two stages"},
    {"pipeline.microbatch_swapped", "the second stage gets two microbatches in the wrong order",
     "two stages, two microbatches"},
    {"pipeline.tied_once", "embedding and output do not add up their gradients", "a tied embedding, two stages"},
    {"pipeline.wrong_dtype",
     "hidden states are sent in bfloat16; in a run in bfloat16 with 4 significant bits of its 8", "two stages"},
    {"router.count_twice", "choices are counted again, as recomputation would", "experts"},
    {"router.z_loss_lost_on_tensor_ranks",
     "where tensor ranks share a layer, the z-loss is counted and not learned from",
     "experts, two tensor ranks, moe.router_z_loss_coef"},
    {"sequence.norm_unsynchronised", "a norm's gradient is that of a rank's own tokens", "sequence parallelism"},
    {"sophiag.own_seed", "each data rank draws the labels of Sophia-G's second backward from another seed",
     "optimizer sophiag, two data ranks", "sophiag"},
    {"sophiag.scale_of_one_rank", "gradients on drawn labels are means over the targets of one data rank",
     "optimizer sophiag, two data ranks", "sophiag"},
    {"sophiag.stale_hessian", "the second data rank keeps the Hessian of its first second backward",
     "optimizer sophiag, two data ranks, two second backwards", "sophiag"},
    {"sophiag.targets_of_one_rank", "Hessians are multiplied by the number of targets of one data rank",
     "optimizer sophiag, two data ranks", "sophiag"},
    {"tensor.doubled_all_reduce", "attention's parts are summed twice", "two tensor ranks"},
    {"tensor.missing_all_reduce", "attention's parts are not summed", "two tensor ranks"},
    {"tensor.vocabulary_offset", "the second tensor rank looks for targets one row off", "two tensor ranks"},
};

/// Returns the fault of this name; null if there is none.
constexpr const PlantName* find_plant(std::string_view name) {
  for (const PlantName& plant : kPlantNames) {
    if (plant.name == name) return &plant;
  }
  return nullptr;
}

}  // namespace athanor::inline verify::plants
