#pragma once
// The actions of all ranks of a pipeline in a step, as JSON and as a picture, from the trace of the step (trace.h).

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "layout/schedule.h"
#include "parallel/pipeline.h"

namespace athanor::inline parallel {

/// Returns the actions of a pipeline's ranks on one clock: seconds since the begin of the first action.
/// @param events  of a trace.
/// @param ranks   those of the pipeline in the world, in its order.
/// @throws Error if an action is missing: the trace had too many of them.
Timeline timeline_of_trace(const nlohmann::json& events, const Schedule& schedule, const std::vector<int>& ranks);

/// Returns, on the first of `ranks` (the pipeline's), the timelines that all of them have of their last step, through a
/// trace of these actions alone; nothing on the others. Collective over `ranks`.
Timeline gather_timeline(const Pipeline& pipeline, comm::Communicator& ranks);

/// Returns the timeline of update `step` as JSON: {"schedule": its name, "ranks", "chunks", "microbatches", "step",
/// "bubble", "own_bubble", "ideal_bubble", "timeline": [for each rank [{"action": "F0", "begin_s", "end_s",
/// "waited_s"}, …], …]}. The bubbles are the three of timeline_title (layout/timeline_picture.h), in its order.
std::string timeline_json(const Schedule& schedule, const Timeline& timeline, int64_t step);

/// Writes FOLDER/pipeline-step-N.json and .svg for update N. @throws IoError.
void write_timeline(const Timeline& timeline, const Schedule& schedule, const std::filesystem::path& folder,
                    int64_t step);

}  // namespace athanor::inline parallel
