#include "cli/core/smoke_against.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/build_info.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/core/other_build.h"
#include "smoke/smoke.h"
#include "smoke/smoke_difference.h"
#include "smoke/smoke_tracer.h"

namespace athanor::inline cli {
namespace {

// Ends a comparison of these models. @param equal  what is equal if none differs, with its verb.
int conclude(const OtherBuild& other, const std::vector<std::string>& models, size_t differing,
             const std::string& equal) {
  ATHANOR_CHECK_DATA(!models.empty(),
                     "--against {}: it trains none of the models that are trained here; expected the "
                     "path of another build's athanor",
                     other.path());
  if (differing == 0) fmt::print("{} the same bits in {}\n", equal, other.path());
  return differing == 0 ? 0 : 1;
}

// Trains each model here until it differs: nothing after that step is reported.
SmokeTrace own_trace(const SmokePlace& on, const SmokeTrace& there) {
  SmokeTracer tracer;
  tracer.stop_when([&](const TracedModel& model) {
    const TracedModel* other = there.find_model(model.name);
    return !other || std::ranges::mismatch(model.tensors, other->tensors).in1 != model.tensors.end();
  });
  run_smoke(on, &tracer);
  return tracer.take(on.device);
}

SmokeTrace own_values(const SmokePlace& on, const TracedPlace& place) {
  SmokeTracer tracer(place);
  run_smoke(on, &tracer);
  return tracer.take(on.device);
}

// Trains both builds again up to a tensor that differs, for its values: traces have only hashes.
std::string compare_values(const OtherBuild& other, const SmokePlace& on, const std::string& model,
                           const TraceDifference& difference) {
  if (!difference.has_values()) return "";
  const TracedPlace place{model, difference.here->step, difference.here->phase, difference.here->name};
  const SmokeTrace there = other.values_of(place), here = own_values(on, place);
  const TracedTensor &mine = here.models.front().tensors.front(), &its = there.models.front().tensors.front();
  // A build whose second run differs from its first would make any comparison a matter of chance.
  if (mine != *difference.here) return fmt::format("a second run here has other bits ({})", mine.hash);
  if (its != *difference.there) return fmt::format("a second run there has other bits ({})", its.hash);
  ATHANOR_CHECK_DATA(there.values.size() == here.values.size(), "--against {}: it wrote {} values of {}, not {}",
                     other.path(), there.values.size(), place.text(), here.values.size());
  return describe_values(mine, here.values, there.values);
}

int compare_traces(const OtherBuild& other, const SmokePlace& on) {
  const SmokeTrace there = other.trace(), here = own_trace(on, there);
  for (const auto& line : differing_facts(here, there)) fmt::print("{}\n", printable(line));
  size_t compared = 0, differing = 0;
  std::vector<std::string> names;
  for (const TracedModel& model : here.models) {
    const TracedModel* found = there.find_model(model.name);
    if (!found) continue;
    names.push_back(model.name);
    compared += model.tensors.size();
    const auto difference = first_difference(model, *found);
    if (!difference) continue;
    ++differing;
    const std::string values = compare_values(other, on, model.name, *difference);
    fmt::print("{}\n{}\n", printable(describe_difference(model.name, *difference, values)),
               meaning_of_difference(model.name, *difference));
  }
  return conclude(
      other, names, differing,
      fmt::format("all {} tensors of {} have", format_thousands(static_cast<double>(compared)), join(names)));
}

// What an older build can be compared by: the losses and gradient norms that its golden file has.
int compare_numbers(const OtherBuild& other, const SmokePlace& on) {
  ATHANOR_CHECK(on.has_golden_files,
                "--against {}: this build is too old to write a trace, and golden files are those of "
                "CPUs; leave out --device",
                other.path());
  const auto there = other.golden(), here = run_smoke(on);
  const BuildInfo& build = build_info();
  fmt::print("{} is too old to write a trace: only losses and gradient norms are compared\n", other.path());
  fmt::print("here athanor {} ({}), there {}\n", build.version, build.commit, printable(first_line(other.version())));
  size_t differing = 0;
  std::vector<std::string> names;
  for (const SmokeRun& run : here) {
    const auto found = std::ranges::find(there, run.model, &SmokeRun::model);
    if (found == there.end()) continue;
    names.push_back(run.model);
    const std::string line = difference_of(run, *found, " here", " there");
    if (line.empty()) continue;
    ++differing;
    fmt::print("{}\n", line);
  }
  return conclude(other, names, differing, fmt::format("every loss and gradient norm of {} has", join(names)));
}

}  // namespace

int smoke_against(const SmokeArguments& given, const SmokePlace& on) {
  const OtherBuild other(given.against, given.device, std::chrono::seconds(given.timeout_s));
  return other.writes_traces() ? compare_traces(other, on) : compare_numbers(other, on);
}

}  // namespace athanor::inline cli
