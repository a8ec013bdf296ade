#pragma once
// The actions of all ranks of a pipeline in a step, combined into JSON and a picture.

#include <filesystem>

#include "parallel/pipeline.h"

namespace athanor {

/// Returns the timelines of all ranks on one clock: seconds since the first of them began. Ranks of one host share its
/// clock; between hosts a barrier measures the difference of clocks, to some 10 µs. Collective over `ranks`, the
/// pipeline's.
Timeline gather_timeline(const Pipeline& pipeline, comm::Communicator& ranks);

/// Returns the pipeline's last step as JSON: {"schedule", "ranks", "chunks", "microbatches", "step", "bubble",
/// "own_bubble", "ideal_bubble", "timeline": of each rank [{"action": "F0", "begin_s", "end_s", "waited_s"}, …]}. The
/// three bubbles are those of timeline_title.
std::string timeline_json(const Schedule& schedule, const Timeline& timeline, int64_t step);

/// Writes FOLDER/pipeline-step-N.json and .svg. Collective over `ranks`; the first of them writes, if `writes`. A run
/// has as many pipelines as data and tensor ranks, of which one is enough.
void write_timeline(const Pipeline& pipeline, comm::Communicator& ranks, const std::filesystem::path& folder,
                    int64_t step, bool writes);

}  // namespace athanor
