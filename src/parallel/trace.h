#pragma once
// The spans of several ranks in Chrome's trace format, which Perfetto and chrome://tracing open.
//
// A rank is a process of the trace. Its row "training" has spans that lie within one another: what the step does, the
// parts of layers, and waits for other ranks. Collectives and messages in flight may overlap, as may reads of batches,
// so they are asynchronous events, named by group and call.

#include <string>
#include <vector>

#include "base/span_log.h"
#include "layout/layout.h"
#include "parallel/pipeline.h"

namespace athanor::inline parallel {

/// A trace shows at most this many ranks, and more only if one pipeline has more: each adds some megabytes at most,
/// which the first rank holds.
inline constexpr size_t kMostTracedRanks = 64;

/// Returns the ranks that a trace shows, ascending: those of the first rank's pipeline, and of the others as many as
/// the limit allows, evenly spaced.
std::vector<int> traced_ranks(const Layout& layout);

/// Logs the actions of the last forward_backward, as spans with the numbers "microbatch", "chunk" and "waited_ns".
void add_actions(const Pipeline& pipeline, SpanLog& log);

/// Where the origin of a trace is on this rank's clock.
struct TraceClock {
  int64_t zero_ns = 0;
};
/// Returns a clock on which no span of any rank begins before 0. Ranks of one host share theirs; between hosts a
/// barrier measures the difference, to some 10 µs. Collective over `world`, the host's group of all ranks.
/// @param first_ns  the earliest begin on this rank.
TraceClock agree_on_clock(comm::Communicator& world, int64_t first_ns);

/// Returns events of one rank, as members of a JSON array without its brackets.
/// @param host  for the name of its process; may be empty.
std::string trace_events(const SpanLog::Spans& spans, TraceClock clock, int rank, const std::string& host);

}  // namespace athanor::inline parallel
