#include "record/last_words.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file_moves.h"
#include "base/files.h"
#include "record/numbered.h"
#include "record/run_folder.h"
#include "record/run_history.h"

namespace athanor::inline record {
namespace fs = std::filesystem;
namespace {

// The rank at fault and its host; null if they are not known.
nlohmann::json rank_of(const Failure& failure, int own) {
  if (failure.rank == Failure::kReporter) return own;
  return failure.rank == Failure::kUnknown ? nlohmann::json() : nlohmann::json(failure.rank);
}

nlohmann::json host_of(const Failure& failure, const std::string& own) {
  if (failure.rank == Failure::kReporter) return own;
  return failure.rank == Failure::kUnknown ? nlohmann::json() : nlohmann::json(failure.host);
}

std::string failure_record(const RunMoment& at, int rank, const std::string& host, const Failure& failure) {
  const double time = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  nlohmann::ordered_json words = {{"cause", exit_code::cause_of(failure.exit_code)},
                                  {"rank", rank_of(failure, rank)},
                                  {"host", host_of(failure, host)},
                                  {"step", at.step},
                                  {"phase", at.phase},
                                  {"tensor", failure.tensor},
                                  {"exit_code", failure.exit_code},
                                  {"text", failure.message},
                                  {"attempt", at.attempt},
                                  {"time", time}};
  if (failure.exit_code == exit_code::kCollective) {
    words["missing"] = nlohmann::ordered_json::array();
    for (const auto& [missing, its_host] : failure.missing)
      words["missing"].push_back({{"rank", missing}, {"host", its_host}});
  }
  return words.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

// The file is whole or absent, and never replaces another: a link is made only if there is no file yet. Some file
// systems have no links; there a rank that is as fast as another may replace its file.
bool put_first(const fs::path& path, int rank, const std::string& text) {
  const fs::path mine = path.parent_path() / fmt::format(".{}.{}", path.filename().string(), rank);
  write_file_atomically(mine, text);
  const bool linked = ::link(mine.c_str(), path.c_str()) == 0;
  if (!linked && errno != EEXIST && !fs::exists(path)) {
    rename_path(mine, path);
    return true;
  }
  ::unlink(mine.c_str());
  return linked;
}

}  // namespace

void leave_last_words(const RunMoment& at, int rank, const std::string& host, const Failure& failure) {
  if (at.run_dir.empty()) return;
  const RunFolder folder{at.run_dir};
  try {
    if (!put_first(folder.last_words(), rank, failure_record(at, rank, host, failure))) return;
  } catch (const std::exception&) {
    // The disk may be full or away. The message on the terminal remains, and the history may still take a line.
  }
  EventLog(folder.events(), at.attempt)
      .add("end", at.step,
           {{"exit_code", failure.exit_code},
            {"cause", exit_code::cause_of(failure.exit_code)},
            {"rank", rank_of(failure, rank)},
            {"text", failure.message}});
}

void set_aside_last_words(const fs::path& run_dir, int64_t attempt_before) {
  const fs::path path = RunFolder{run_dir}.last_words();
  if (!fs::exists(path)) return;
  const fs::path aside =
      of_attempt(path, free_number(attempt_before, [&](int64_t number) { return is_taken(of_attempt(path, number)); }));
  rename_path(path, aside);
}

}  // namespace athanor::inline record
