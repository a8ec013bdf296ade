#pragma once
// What the ranks of a pipeline did in a step, put together, as JSON and as a picture.

#include <filesystem>

#include "parallel/pipeline.h"

namespace athanor {

/// Timelines of all ranks on one clock: seconds since the first of them began. Ranks of one host share its clock;
/// between hosts a barrier says how clocks differ, to some 10 µs. Collective over `ranks`, those of the pipeline.
Timeline gather_timeline(const Pipeline& pipeline, comm::Communicator& ranks);

/// Of the pipeline's last step: {"schedule", "ranks", "chunks", "microbatches", "step", "bubble", "own_bubble",
/// "ideal_bubble", "timeline": of each rank [{"action": "F0", "begin_s", "end_s", "waited_s"}, …]}. The three bubbles
/// are those of timeline_title.
std::string timeline_json(const Schedule& schedule, const Timeline& timeline, int64_t step);

/// Writes FOLDER/pipeline-step-N.json and .svg. Collective over `ranks`; their first writes if `writes`. A run has as
/// many pipelines as data and tensor ranks: one of them is enough.
void write_timeline(const Pipeline& pipeline, comm::Communicator& ranks, const std::filesystem::path& folder,
                    int64_t step, bool writes);

}  // namespace athanor
