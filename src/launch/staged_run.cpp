#include "launch/staged_run.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/own_folder.h"
#include "config/toml_reader.h"
#include "launch/process.h"
#include "launch/supervisor.h"
#include "launch/training_command.h"

namespace athanor::launch {
namespace fs = std::filesystem;
namespace {

// The names by which the program opens its libraries, and the program that reads stacks.
constexpr const char* kLibraries[] = {"libathanor_core.so", "libathanor_mpi_openmpi.so", "libathanor_mpi_mpich.so"};
constexpr const char* kStackReader = "athanor-stacks";

// These are on each node already.
bool is_of_the_system(const std::string& path) {
  constexpr std::string_view kFolders[] = {"/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"};
  return std::any_of(std::begin(kFolders), std::end(kFolders),
                     [&](std::string_view folder) { return path.starts_with(folder); });
}

// Adds the libraries that the dynamic linker would load for a file: lines such as "\tlibc10.so => /x/libc10.so
// (0x7f…)".
void add_needed(const fs::path& file, const Surroundings& here, std::set<std::string>& libraries) {
  const auto said = ask_tool({"ldd", file.string()}, here);
  ATHANOR_CHECK(said, "--yeet: `ldd {}` does not list the libraries to send; start it without --yeet", file.string());
  for (size_t begin = 0; begin < said->size();) {
    const size_t end = std::min(said->find('\n', begin), said->size());
    const std::string line = said->substr(begin, end - begin);
    begin = end + 1;
    const size_t arrow = line.find(" => /"), behind = line.rfind(" (0x");
    if (arrow == line.npos || behind == line.npos || behind < arrow) continue;
    // An installed program looks for its libraries in bin/../lib.
    const std::string path = fs::path(line.substr(arrow + 4, behind - arrow - 4)).lexically_normal().string();
    if (!is_of_the_system(path)) libraries.insert(path);
  }
}

// A folder of data is named by `data.path`; several are named in the configuration file, which stays as it is.
void add_data(const RunConfig& config, const fs::path& target, StagedFolder& folder, StagedRun& staged) {
  const bool has_others = !config.data.sources.empty() || !config.train.stages.empty();
  if (has_others || config.data.path.empty()) {
    staged.left_out = "the data stays where it is: only a single data.path is sent";
    return;
  }
  const fs::path path = fs::absolute(config.data.path).lexically_normal();
  const fs::path named = path.has_filename() ? path : path.parent_path();
  folder.sources.push_back(named.string());
  staged.command.insert(staged.command.end(),
                        {"--set", fmt::format("data.path={}", (target / named.filename()).string())});
}

}  // namespace

StagedRun find_staged_run(const std::vector<std::string>& command, const std::string& own_program,
                          const fs::path& target, const Surroundings& here) {
  ATHANOR_CHECK(target.is_absolute(), "--yeet {}: expected an absolute path, on the disk of each node",
                target.string());
  ATHANOR_CHECK(command[0] == own_program || fs::path(command[0]).filename() == "athanor",
                "--yeet is for commands of athanor, not for {}; send other programs with `athanor yeet`", command[0]);
  const fs::path program = own_program, libraries_at = own_folder();
  const bool is_flat = program.parent_path() == libraries_at;  // an installation has bin/ and lib/
  std::set<std::string> libraries;
  add_needed(program, here, libraries);
  for (const char* name : kLibraries) {
    if (!fs::exists(libraries_at / name)) continue;
    libraries.insert((libraries_at / name).string());
    if (name == kLibraries[0]) add_needed(libraries_at / name, here, libraries);
  }
  StagedFolder own{is_flat ? target : target / "bin", {own_program}};
  if (fs::exists(program.parent_path() / kStackReader)) own.sources.push_back(program.parent_path() / kStackReader);
  StagedFolder more{is_flat ? target : target / libraries_at.filename(), {libraries.begin(), libraries.end()}};
  StagedRun staged;
  staged.command = command;
  staged.command[0] = (own.folder / program.filename()).string();
  StagedFolder data{target, {}};
  if (const auto words = training_words(command))
    add_data(load_run_config(words->config, words->overrides), target, data, staged);
  for (StagedFolder& folder : std::array{own, more, data}) {
    const auto same = std::find_if(staged.folders.begin(), staged.folders.end(),
                                   [&](const StagedFolder& one) { return one.folder == folder.folder; });
    if (folder.sources.empty()) continue;
    if (same == staged.folders.end())
      staged.folders.push_back(folder);
    else
      same->sources.insert(same->sources.end(), folder.sources.begin(), folder.sources.end());
  }
  return staged;
}

int stage(const StagedRun& staged, const LaunchRequest& request, const Surroundings& here) {
  for (const StagedFolder& folder : staged.folders) {
    LaunchRequest sending = request;
    sending.ranks = {std::nullopt, 1, request.ranks.has_nodes};
    sending.reserve_cores = 0;
    sending.command = {request.own_program, "yeet", "--no-unpack", "--to", folder.folder.string(), "--"};
    sending.command.insert(sending.command.end(), folder.sources.begin(), folder.sources.end());
    Supervision supervision;  // no limit on its time, no further attempts
    supervision.own_program = request.own_program;
    if (const int code = supervise(make_plan(sending, here), here, supervision)) return code;
  }
  return 0;
}

}  // namespace athanor::launch
