#pragma once
// Which layers each pipeline stage has.

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor {

/// A run of layers; with the embedding before the first, and the last norm and the output after the last of all.
struct StageLayers {
  int64_t first = 0, end = 0;
  bool embeds = false, has_head = false;

  int64_t num_layers() const { return end - first; }
  bool operator==(const StageLayers&) const = default;
};

/// Stages in the order of forward, pipeline_parallel_degree · virtual_stages of them; stage s is run by pipeline rank
/// s % pipeline_parallel_degree as its chunk s / pipeline_parallel_degree. As pipeline_split says; where it is empty,
/// so that the most expensive stage costs least, and of such splits the most even one, with fewer layers where more
/// microbatches are in flight: in front. Without split faults (find_split_faults).
std::vector<StageLayers> split_stages(const ModelConfig& model, const ParallelismConfig& parallelism);

/// Those of one pipeline rank, by chunk.
std::vector<StageLayers> stages_of(const ModelConfig& model, const ParallelismConfig& parallelism, int pipeline_rank);

/// What a stage costs a token, forward FLOPs. The embedding is a look-up and costs nothing, the output what its matrix
/// does. Stages are split once for a run, so attention is counted over max_position_embeddings tokens, or over 4,096,
/// where a model is meant for longer sequences than it mostly trains on.
double stage_cost(const ModelConfig& model, const StageLayers& stage);

/// What does not add up, with numbers: more stages than layers, a split of another length or sum, an empty stage.
std::vector<std::string> find_split_faults(const ModelConfig& model, const ParallelismConfig& parallelism);

}  // namespace athanor
