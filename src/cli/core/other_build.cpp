#include "cli/core/other_build.h"

#include <unistd.h>

#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/signals.h"
#include "base/temporary_folder.h"
#include "base/text.h"
#include "launch/process.h"

namespace athanor::inline cli {
namespace {

namespace fs = std::filesystem;

// Far above what a build writes (a trace has about a megabyte), and far below a disk: a program that is no build may
// print without end.
constexpr uintmax_t kMostBytes = uintmax_t{256} << 20;

fs::path folder_prefix() { return fs::temp_directory_path() / "athanor-smoke"; }

std::string program_of(const std::string& given) {
  std::error_code ignored;
  fs::path path = fs::absolute(given, ignored);
  ATHANOR_CHECK(
      !given.empty() && fs::exists(path, ignored),
      "--against {}: there is no such program; expected the path of another build's athanor, or of its folder",
      printable(given));
  if (fs::is_directory(path, ignored)) {
    path /= "athanor";
    ATHANOR_CHECK(fs::is_regular_file(path, ignored),
                  "--against {}: there is no athanor in this folder; expected the path of another build's program",
                  printable(given));
  }
  ATHANOR_CHECK(fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0,
                "--against {}: this may not be executed; expected the path of another build's athanor",
                printable(given));
  return path.string();
}

uintmax_t bytes_in(const fs::path& folder) {
  uintmax_t sum = 0;
  std::error_code ignored;
  for (fs::recursive_directory_iterator at(folder, ignored), end; at != end; at.increment(ignored)) {
    std::error_code gone;
    const uintmax_t size = at->is_regular_file(gone) ? at->file_size(gone) : 0;
    if (!gone) sum += size;
    if (ignored) break;
  }
  return sum;
}

std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  constexpr size_t kMost = 300;
  std::string_view line = text.substr(text.rfind('\n') + 1);
  return line.empty() ? "it printed nothing" : "its last line: " + printable(line.substr(0, kMost));
}

}  // namespace

OtherBuild::OtherBuild(const std::string& given, std::string device, std::chrono::seconds limit)
    : path_(program_of(given)), device_(std::move(device)), limit_(limit) {
  const TemporaryFolder folder(folder_prefix());
  const Ran asked = run({"smoke", "--help"}, folder.path());
  ATHANOR_CHECK(asked.code == 0 && asked.output.find("--golden-dir") != std::string::npos,
                "--against {}: this is no athanor with a smoke test: `smoke --help` ended with code {}; {}", path_,
                asked.code, last_line(asked.output));
  writes_traces_ = asked.output.find("--trace-tensor") != std::string::npos;
}

OtherBuild::Ran OtherBuild::run(const std::vector<std::string>& words, const fs::path& folder) const {
  launch::Program program{{path_}};
  program.words.insert(program.words.end(), words.begin(), words.end());
  const fs::path printed = folder / "output.txt";
  const SignalGuard signals("ending the other build");
  bool writes_too_much = false;
  const auto code = launch::run_into_file(program, printed, limit_, [&] {
    writes_too_much = bytes_in(folder) > kMostBytes;
    return writes_too_much || signals.stop_signal().has_value();
  });
  if (const auto signal = signals.stop_signal())
    throw Error(fmt::format("stopped by {} while {} was running; nothing was kept", signal_name(*signal), path_),
                128 + *signal);
  ATHANOR_CHECK(!writes_too_much, "--against {}: it wrote more than {}; expected the path of another build's athanor",
                path_, format_bytes(static_cast<double>(kMostBytes)));
  ATHANOR_CHECK(code, "--against {}: `{}` did not end within {} s; --timeout may give it longer", path_, words.front(),
                limit_.count());
  return {*code, read_file(printed)};
}

// Code 1 is that of a smoke test whose checks or golden file do not agree: it has trained all the same.
void OtherBuild::run_smoke(std::vector<std::string> words, const fs::path& folder, const fs::path& written) const {
  words.insert(words.begin(), "smoke");
  words.insert(words.end(), {"--device", device_});
  const Ran ran = run(words, folder);
  std::error_code ignored;
  ATHANOR_CHECK_DATA((ran.code == 0 || ran.code == 1) && fs::exists(written, ignored),
                     "--against {}: `smoke {}` {} (code {}); {}", path_, words[1],
                     fs::exists(written, ignored) ? "failed" : "wrote nothing", ran.code, last_line(ran.output));
}

SmokeTrace OtherBuild::trace() const {
  const TemporaryFolder folder(folder_prefix());
  const fs::path file = folder.path() / "trace.txt";
  run_smoke({"--trace", file.string()}, folder.path(), file);
  return parse_trace(read_file(file), fmt::format("--against {}: trace", path_));
}

SmokeTrace OtherBuild::values_of(const TracedPlace& place) const {
  const TemporaryFolder folder(folder_prefix());
  const fs::path file = folder.path() / "tensor.txt";
  run_smoke({"--trace", file.string(), "--trace-tensor", place.text()}, folder.path(), file);
  SmokeTrace trace = parse_trace(read_file(file), fmt::format("--against {}: trace", path_));
  ATHANOR_CHECK_DATA(trace.num_tensors() == 1 && trace.models.front().tensors.size() == 1,
                     "--against {}: its trace of {} has {} tensors, not one; expected the path of another build's "
                     "athanor",
                     path_, place.text(), trace.num_tensors());
  return trace;
}

std::vector<SmokeRun> OtherBuild::golden() const {
  const TemporaryFolder folder(folder_prefix());
  const fs::path goldens = folder.path() / "golden";
  run_smoke({"--update", "--golden-dir", goldens.string()}, folder.path(), goldens);
  for (const auto& entry : fs::directory_iterator(goldens)) {
    if (entry.path().extension() == ".json")
      return read_golden(read_file(entry.path()),
                         fmt::format("--against {}: {}", path_, entry.path().filename().string()));
  }
  fail<DataError>("--against {}: `smoke --update` wrote no golden file; expected the path of another build's athanor",
                  path_);
}

std::string OtherBuild::version() const {
  const TemporaryFolder folder(folder_prefix());
  return run({"--version"}, folder.path()).output;
}

}  // namespace athanor::inline cli
