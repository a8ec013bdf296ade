#include <fmt/core.h>

#include <filesystem>

#include "base/files.h"
#include "base/log.h"
#include "cli/core.h"
#include "train/smoke.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

// Golden files are under share/ in an installation, and under tests/ in a checkout.
fs::path default_golden_dir() {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path installed = program / "../share/athanor/golden";
  return fs::exists(installed) ? installed : program / "../tests/golden";
}

int report(const std::vector<SmokeRun>& runs, const fs::path& golden, const std::string& kind) {
  int problems = 0;
  for (const auto& run : runs) {
    fmt::print("{}: loss {:.4f} → {:.4f} in {} steps\n", run.model, run.steps.front().loss, run.steps.back().loss,
               run.steps.size());
    for (const auto& finding : run.findings) {
      fmt::print("{}: {}\n", run.model, finding);
      ++problems;
    }
  }
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

}  // namespace
}  // namespace athanor

ATHANOR_CORE_ENTRY(smoke) {
  using namespace athanor;
  const auto& given = *static_cast<const SmokeArguments*>(arguments);
  const std::string kind = machine_kind();
  const fs::path folder = given.golden_dir.empty() ? default_golden_dir() : fs::path(given.golden_dir);
  const fs::path golden = folder / (kind + ".json");
  const auto runs = run_smoke();
  if (given.update) {
    fs::create_directories(folder);
    write_file_atomically(golden, golden_text(runs, kind));
    log::info("{} written; commit it with the reason why the numbers changed", golden.string());
  }
  return report(runs, golden, kind) == 0 ? 0 : 1;
}
