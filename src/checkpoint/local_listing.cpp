#include "checkpoint/local_listing.h"

#include <fmt/core.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "checkpoint/local_store.h"

namespace athanor::inline checkpoint {
namespace fs = std::filesystem;
namespace {

std::vector<std::string> nodes_in(const fs::path& file) {
  std::vector<std::string> nodes;
  const auto read = parse_json(read_file(file), file.string());
  for (const auto& node : read.at("nodes")) nodes.push_back(node.at("node"));
  return nodes;
}

std::vector<LocalHere> find_here(const LocalRun& run, std::vector<std::string>& notes) {
  std::map<std::tuple<int64_t, int64_t, int>, std::set<int>, std::greater<>> writers;
  for (const LocalStore& store : list_stores(run))
    for (const LocalPart& part : store.list(notes))
      writers[{part.step, part.attempt, part.writers}].insert(part.kept.begin(), part.kept.end());
  std::vector<LocalHere> here;
  for (const auto& [key, found] : writers)
    here.push_back({std::get<0>(key), std::get<1>(key), std::get<2>(key), static_cast<int>(found.size())});
  return here;
}

void look(const fs::path& run_dir, LocalListing& listing) {
  std::vector<std::string> notes;
  std::string of_another;
  const LocalRun run = read_local_run(fs::canonical(run_dir), of_another);
  if (!of_another.empty()) notes.push_back(of_another);
  if (!run.id.empty()) {
    listing.folder = LocalStore(run, "x").root().parent_path();
    listing.nodes = nodes_in(run_dir / kWhereName);
    listing.here = find_here(run, notes);
  }
  listing.problem = join(notes, "; ");
}

}  // namespace

std::optional<LocalListing> list_local(const fs::path& run_dir) {
  std::error_code ignored;
  if (!fs::exists(run_dir / kWhereName, ignored)) return std::nullopt;
  LocalListing listing;
  try {
    look(run_dir, listing);
  } catch (const std::exception& error) {
    listing.problem = error.what();
  }
  return listing;
}

std::string describe_local(const LocalListing& listing) {
  constexpr size_t kShownNodes = 4;
  std::string text = "local checkpoints:";
  if (!listing.folder.empty())
    text += fmt::format(" recorded on {} node{} ({}) in {}; on this host: ", listing.nodes.size(),
                        listing.nodes.size() == 1 ? "" : "s", join_first(listing.nodes, kShownNodes),
                        listing.folder.string());
  std::vector<std::string> here;
  for (const auto& [step, attempt, writers, found] : listing.here)
    here.push_back(found == writers ? fmt::format("step {} of attempt {}, whole", step, attempt)
                                    : fmt::format("step {} of attempt {}, part (pieces of {} of {} ranks)", step,
                                                  attempt, found, writers));
  if (!listing.folder.empty()) text += here.empty() ? "none" : join(here, "; ");
  if (!listing.problem.empty()) text += (listing.folder.empty() ? " " : "; ") + listing.problem;
  return text;
}

}  // namespace athanor::inline checkpoint
