#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <ostream>

#include "base/files.h"
#include "base/log.h"
#include "cli/core.h"
#include "cli/core/smoke_against.h"
#include "ops/device_choice.h"
#include "smoke/smoke.h"
#include "smoke/smoke_tracer.h"

namespace athanor::inline cli {
namespace {

namespace fs = std::filesystem;

// Golden files are under share/ in an installation, and under tests/ in a checkout.
fs::path default_golden_dir() {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path installed = program / "../share/athanor/golden";
  return fs::exists(installed) ? installed : program / "../tests/golden";
}

int report_checks(const std::vector<SmokeRun>& runs) {
  int problems = 0;
  for (const auto& run : runs) {
    fmt::print("{}: loss {:.4f} → {:.4f} in {} steps\n", run.model, run.steps.front().loss, run.steps.back().loss,
               run.steps.size());
    for (const auto& finding : run.findings) {
      fmt::print("{}: {}\n", run.model, finding);
      ++problems;
    }
  }
  return problems;
}

int report(const std::vector<SmokeRun>& runs, const fs::path& golden, const std::string& kind) {
  int problems = report_checks(runs);
  if (!fs::exists(golden)) {
    fmt::print(
        "no golden file for this kind of machine ({}): only the built-in checks were made; `athanor smoke --update` "
        "writes one\n",
        kind);
    return problems;
  }
  for (const auto& line : compare_with_golden(runs, read_file(golden), golden.string())) {
    fmt::print("{}\n", line);
    ++problems;
  }
  if (problems == 0) fmt::print("every loss and gradient norm has the bits of {}\n", golden.filename().string());
  return problems;
}

// A pipe is written as it is: it cannot be replaced by a file that is whole.
void write_trace(const fs::path& path, const std::string& text) {
  std::error_code ignored;
  if (!fs::exists(path, ignored) || fs::is_regular_file(path, ignored)) return write_file_atomically(path, text);
  std::ofstream pipe(path, std::ios::binary);
  if (!(pipe << text << std::flush)) fail_errno("cannot write", path.string());
}

int trace_one_tensor(const SmokeArguments& given, const SmokePlace& place) {
  SmokeTracer tracer(TracedPlace::parse(given.trace_tensor));
  run_smoke(place, &tracer);
  const SmokeTrace trace = tracer.take(place.device);
  write_trace(given.trace, text_of(trace));
  const TracedTensor& tensor = trace.models.front().tensors.front();
  log::info("{} written: {} values of {} ({} {})", given.trace, trace.values.size(), given.trace_tensor, tensor.shape,
            tensor.type);
  return 0;
}

// Trains the models, and writes the trace if one is asked for.
std::vector<SmokeRun> run_traced(const SmokeArguments& given, const SmokePlace& place) {
  if (given.trace.empty()) return run_smoke(place);
  SmokeTracer tracer;
  auto runs = run_smoke(place, &tracer);
  write_trace(given.trace, text_of(tracer.take(place.device)));
  return runs;
}

}  // namespace
}  // namespace athanor::inline cli

ATHANOR_CORE_ENTRY(smoke) {
  using namespace athanor;
  const auto& given = *static_cast<const SmokeArguments*>(arguments);
  const SmokePlace place = ops::choose_device(given.device, {}, "--device");
  if (!given.against.empty()) return smoke_against(given, place);
  if (!given.trace_tensor.empty()) return trace_one_tensor(given, place);
  if (!place.has_golden_files) {
    ATHANOR_CHECK(!given.update, "smoke: golden files are those of CPUs; leave out --update, or --device");
    const int problems = report_checks(run_traced(given, place));
    if (problems == 0) fmt::print("a second run of each model on {} has the same bits\n", place.device.str());
    return problems == 0 ? 0 : 1;
  }
  const std::string kind = machine_kind();
  const fs::path folder = given.golden_dir.empty() ? default_golden_dir() : fs::path(given.golden_dir);
  const fs::path golden = folder / (kind + ".json");
  const auto runs = run_traced(given, place);
  if (given.update) {
    fs::create_directories(folder);
    write_file_atomically(golden, golden_text(runs, kind));
    log::info("{} written; commit it with the reason why the numbers changed", golden.string());
  }
  return report(runs, golden, kind) == 0 ? 0 : 1;
}
