#pragma once
// The actions of all ranks of a pipeline in a step, combined into JSON and a picture.

#include <filesystem>

#include "parallel/pipeline.h"

namespace athanor {

/// Returns, on every rank, the timelines that all ranks have of their last step, on one clock: seconds since the begin
/// of the first action. Ranks of one host share its clock; between hosts a barrier measures the difference of clocks,
/// to some 10 µs. Collective over `ranks`, the pipeline's.
Timeline gather_timeline(const Pipeline& pipeline, comm::Communicator& ranks);

/// Returns the timeline of update `step` as JSON: {"schedule": its name, "ranks", "chunks", "microbatches", "step",
/// "bubble", "own_bubble", "ideal_bubble", "timeline": [for each rank [{"action": "F0", "begin_s", "end_s",
/// "waited_s"}, …], …]}. The bubbles are the three of timeline_title (layout/timeline_picture.h), in its order.
std::string timeline_json(const Schedule& schedule, const Timeline& timeline, int64_t step);

/// Writes FOLDER/pipeline-step-N.json and .svg for update N. Collective over `ranks`, the pipeline's. If `writes`, the
/// first of them writes: a run has a pipeline for each data and tensor rank, and the files of one are enough.
/// @throws IoError.
void write_timeline(const Pipeline& pipeline, comm::Communicator& ranks, const std::filesystem::path& folder,
                    int64_t step, bool writes);

}  // namespace athanor
