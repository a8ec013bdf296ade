#include "saves/local_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file_moves.h"
#include "base/log.h"
#include "base/text.h"
#include "saves/file_messages.h"

namespace athanor::inline saves {
namespace fs = std::filesystem;
namespace {

// A link takes no memory; other file systems get a copy. After a kill the file is whole or absent. After a crash of the
// node it may be cut, which is enough: no local copy is trusted before it is verified.
void put_file(const fs::path& from, const fs::path& to) {
  const fs::path beside = temporary_name(to);
  fs::remove(beside);
  std::error_code refused;
  fs::create_hard_link(from, beside, refused);
  if (refused) fs::copy_file(from, beside);
  rename_path(beside, to);
}

}  // namespace

struct LocalFiles::Decision {
  bool any = true;                                // whether a rank has asked for anything
  std::vector<std::pair<int, std::string>> next;  // node and file: the node takes its next copy
  std::vector<FileMove> moves;

  std::string to_text() const {
    return nlohmann::json{{"any", any}, {"next", next}, {"moves", text_of_moves(moves)}}.dump();
  }
  static Decision from_text(const std::string& text) {
    const auto read = nlohmann::json::parse(text);
    return {read.at("any"), read.at("next"), moves_of_text(read.at("moves"))};
  }
};

struct LocalFiles::Request {
  bool any = false;                               // whether a rank has asked for anything
  std::vector<std::set<std::string>> needed;      // by node: files that are missing or damaged there
  std::set<std::pair<int, std::string>> damaged;  // file, and the node that its copy came from
  std::string first_damage;                       // its line for people; empty if there is none
};

LocalFiles::LocalFiles(const LocalStart& local, const Team& team, comm::Communicator& world)
    : local_(local), team_(team), world_(world), folder_(local.found->path(local.choice->attempt, local.choice->step)) {
  if (!is_leader()) return;
  std::vector<LocalStore> stores = {*local.found};
  stores.insert(stores.end(), local.left.begin(), local.left.end());
  std::vector<std::string> told;  // when the start looked
  for (const LocalStore& store : stores)
    for (const LocalPart& part : store.list(told))
      if (part.step == local.choice->step && part.attempt == local.choice->attempt &&
          part.writers == std::ssize(local.choice->holders))
        copies_.push_back({store.path(part.attempt, part.step), {part.kept.begin(), part.kept.end()}});
}

std::vector<fs::path> LocalFiles::folders_with(int writer) const {
  std::vector<fs::path> folders;
  for (const Copies& each : copies_)
    if (each.writers.contains(writer)) folders.push_back(each.folder);
  return folders;
}

void LocalFiles::link_left() {
  team_.on_all([&] {
    if (!is_leader()) return;
    fs::create_directories(folder_);
    for (const Copies& each : copies_) {
      if (each.folder == folder_) continue;
      for (const auto& entry : fs::directory_iterator(each.folder))
        if (const fs::path to = folder_ / entry.path().filename();
            entry.path().extension() == ".safetensors" && !fs::exists(to))
          put_file(entry.path(), to);
    }
  });
}

bool LocalFiles::is_in_order(const Manifest& manifest, const std::string& file) const {
  std::error_code absent;
  return fs::file_size(folder_ / file, absent) == manifest.files.at(file) && !absent;
}

// Puts the next copy that this node has into folder(); false if it has none.
bool LocalFiles::take_next(const std::string& file) {
  const auto folders = folders_with(writer_of_file(file));
  for (size_t& taken = taken_[file]; taken + 1 < folders.size();) {
    ++taken;
    if (!fs::exists(folders[taken] / file)) continue;
    put_file(folders[taken] / file, folder_ / file);
    return true;
  }
  return false;
}

// Files that this node should have and lacks, although it has taken every copy.
std::vector<std::string> LocalFiles::lost_here(const Manifest& manifest) {
  std::set<int> writers;
  for (const Copies& each : copies_) writers.insert(each.writers.begin(), each.writers.end());
  std::vector<std::string> lost;
  for (const auto& [file, size] : manifest.files) {
    if (!writers.contains(writer_of_file(file))) continue;
    bool there = is_in_order(manifest, file);
    while (!there && take_next(file)) there = is_in_order(manifest, file);
    if (!there) lost.push_back(file);
  }
  return lost;
}

// On the first rank: joins what the ranks ask for, and notes the copies that a node does not have.
LocalFiles::Request LocalFiles::join_requests(const std::vector<std::string>& texts) {
  Request all;
  all.needed.resize(static_cast<size_t>(local_.nodes.size()));
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    all.any = true;
    const int node = local_.nodes.node_of(static_cast<int>(rank));
    auto& needed = all.needed[static_cast<size_t>(node)];
    const auto read = nlohmann::json::parse(texts[rank]);
    for (const std::string file : read.at("lost")) useless_[{node, file}] = INT_MAX;
    for (const std::string file : read.at("missing")) needed.insert(file);
    for (const auto& [file, reason] : read.at("damaged").items()) {
      needed.insert(file);
      const auto sent = origin_.find({node, file});
      const int from = sent == origin_.end() ? node : sent->second;
      all.damaged.emplace(from, file);
      if (all.first_damage.empty())
        all.first_damage = fmt::format("the local checkpoint of step {}: a file of node {}: {}", local_.choice->step,
                                       local_.nodes.name_of(from), reason.get<std::string>());
    }
  }
  return all;
}

// On the first rank: chooses the copies that take the place of damaged ones, and the moves to nodes that lack a file.
LocalFiles::Decision LocalFiles::decide(const std::vector<std::string>& texts) {
  Request request = join_requests(texts);
  Decision decision{request.any, {}, {}};
  for (const auto& copy : request.damaged) {
    if (int& useless = useless_[copy]; useless < INT_MAX) ++useless;
    const auto& [node, file] = copy;
    if (copies_left(*local_.choice, useless_, node, file) <= 0) continue;
    decision.next.push_back(copy);
    request.needed[static_cast<size_t>(node)].erase(file);
  }
  std::vector<std::vector<std::string>> moved;
  for (const auto& files : request.needed) moved.emplace_back(files.begin(), files.end());
  try {
    decision.moves = plan_moves(*local_.choice, moved, useless_);
  } catch (const CheckpointError& error) {
    if (request.first_damage.empty()) throw;
    fail<CheckpointError>("{}; {}", request.first_damage, error.what());
  }
  for (const FileMove& move : decision.moves)
    for (const std::string& file : move.files) origin_[{move.to, file}] = move.from;
  if (const size_t damaged = request.damaged.size(); damaged > 0)
    log::warn("{}; another copy takes its place{}", request.first_damage,
              damaged > 1 ? fmt::format(", as for {} more file(s) that are damaged", damaged - 1) : "");
  return decision;
}

LocalFiles::Decision LocalFiles::agree(const std::string& own) {
  const auto all = team_.texts_on_first(own);
  return Decision::from_text(team_.from_first([&] { return decide(all).to_text(); }));
}

void LocalFiles::fetch(const Manifest& manifest, const std::set<std::string>& files) {
  std::string own;
  team_.on_all([&] {
    std::vector<std::string> missing, lost;
    if (is_leader()) lost = lost_here(manifest);
    for (const std::string& file : files)
      if (!is_in_order(manifest, file)) missing.push_back(file);
    const nlohmann::json text = {{"missing", missing}, {"lost", lost}, {"damaged", nlohmann::json::object()}};
    if (!missing.empty() || !lost.empty()) own = text.dump();
  });
  const Decision decision = agree(own);
  team_.on_all([&] {
    if (is_leader()) make_moves(decision.moves);
  });
  if (team_.is_first()) tell_moves(decision.moves, manifest);
}

bool LocalFiles::replace(const Manifest& manifest, const FileDamage& damage) {
  const nlohmann::json none = nlohmann::json::array(), text = {{"missing", none}, {"lost", none}, {"damaged", damage}};
  const Decision decision =
      agree(damage.empty() ? "" : text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  if (!decision.any) return false;
  team_.on_all([&] {
    if (!is_leader()) return;
    for (const auto& [node, file] : decision.next)
      if (node == this->node()) take_next(file);
  });
  team_.on_all([&] {
    if (is_leader()) make_moves(decision.moves);
  });
  if (team_.is_first()) tell_moves(decision.moves, manifest);
  return true;
}

// Makes the moves of one distance between nodes in which this rank's node takes part, as its leader.
void LocalFiles::make_moves(const std::vector<FileMove>& moves) {
  const int size = local_.nodes.size();
  std::exception_ptr failure;
  for (auto move = moves.begin(); move != moves.end();) {
    const auto distance = [size](const FileMove& each) { return (each.to - each.from + size) % size; };
    std::optional<OutgoingFiles> out;
    std::vector<IncomingFiles> in;
    const int now = distance(*move);
    for (; move != moves.end() && distance(*move) == now; ++move) {
      if (move->from == node()) out = OutgoingFiles{local_.nodes.leader_of(move->to), folder_, move->files};
      if (move->to == node()) in.push_back({local_.nodes.leader_of(move->from), folder_});
    }
    if (!out && in.empty()) continue;
    try {
      exchange_files(world_, out, in, wait_for_pending, team_.worked);
    } catch (const CommError&) {
      throw;
    } catch (const Error&) {
      failure = std::current_exception();  // other nodes wait for the moves that follow
    }
  }
  if (failure) std::rethrow_exception(failure);
}

void LocalFiles::tell_moves(const std::vector<FileMove>& moves, const Manifest& manifest) const {
  if (moves.empty()) return;
  double bytes = 0;
  size_t files = 0;
  std::vector<std::string> nodes;
  for (const FileMove& move : moves) {
    nodes.push_back(local_.nodes.name_of(move.to));
    files += move.files.size();
    for (const std::string& file : move.files) bytes += static_cast<double>(manifest.files.at(file));
  }
  std::ranges::sort(nodes);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  log::info("{} file(s), {}, of the local checkpoint came from other nodes to {}", files, format_bytes(bytes),
            join_first(nodes, 4, ", "));
}

}  // namespace athanor::inline saves
