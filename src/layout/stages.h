#pragma once
// The layers of each pipeline stage.

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace athanor::inline layout {

/// Consecutive layers [first, end) of a pipeline stage; the first stage also has the embedding, and the last one has
/// the last norm and the output.
struct StageLayers {
  int64_t first = 0, end = 0;
  bool embeds = false, has_head = false;

  int64_t num_layers() const { return end - first; }
  bool operator==(const StageLayers&) const = default;
};

/// Returns the pipeline_parallel_degree · virtual_stages stages in the order of forward. Pipeline rank
/// s % pipeline_parallel_degree computes stage s as its chunk s / pipeline_parallel_degree. The split is
/// pipeline_split. If that is empty, it is the split whose most expensive stage costs least, and among those the most
/// even one. The front stages then get fewer layers, since they have more microbatches in flight. The configuration
/// must have no split faults (find_split_faults).
std::vector<StageLayers> split_stages(const ModelConfig& model, const ParallelismConfig& parallelism);

/// Returns the stages of one pipeline rank, by chunk.
std::vector<StageLayers> stages_of(const ModelConfig& model, const ParallelismConfig& parallelism, int pipeline_rank);

/// Returns the forward FLOPs of a stage for one token. The embedding is a look-up and costs nothing; the output costs
/// its matrix product. Stages are split once for a run, so attention is counted over a fixed length:
/// max_position_embeddings tokens, but at most 4,096, since a model for longer sequences mostly trains on shorter ones.
double stage_cost(const ModelConfig& model, const StageLayers& stage);

/// Returns a line with numbers for each fault of the split: more stages than layers, a pipeline_split with the wrong
/// length or sum, an empty stage. Empty if there is none.
std::vector<std::string> find_split_faults(const ModelConfig& model, const ParallelismConfig& parallelism);

}  // namespace athanor::inline layout
