#include "board/stack_request.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/file_moves.h"
#include "base/files.h"
#include "base/wall_clock.h"
#include "board/place.h"

namespace athanor::board {
namespace fs = std::filesystem;

namespace {

using nlohmann::ordered_json;

constexpr std::chrono::milliseconds kLook{100};  // how often the one who asks lists the answers

// Returns what `read` makes of a text of this format.
template <class Read>
auto read_text(const std::string& text, const char* what, Read read) {
  const nlohmann::json json = parse_json(text, what);
  try {
    const int format = json.at("format");
    if (format != kRequestFormat)
      fail<DataError>("{}: format {}, and this version reads {}", what, format, kRequestFormat);
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    fail<DataError>("{}: {}", what, json_error_reason(error.what()));
  }
}

// The clock of the file system, by which all of its files have their times.
bool is_older(const fs::path& folder, const fs::path& than) {
  std::error_code failed;
  const auto then = fs::last_write_time(folder, failed), now = fs::last_write_time(than, failed);
  return !failed && now - then > std::chrono::duration<double>(kRequestLife_s);
}

void remove_old(const fs::path& requests, const fs::path& own) {
  for (const std::string& name : names_in(requests))
    if (is_older(requests / name, own)) try_remove_tree(requests / name);  // that of another user stays
}

// What root makes belongs to the user of the run, whose collectors answer no other.
void give_to(uid_t owner, const fs::path& path) {
  if (::geteuid() == 0 && owner != 0 && ::lchown(path.c_str(), owner, static_cast<gid_t>(-1)) != 0)
    fail_errno("cannot give to the run's user", path.string());
}

// Makes RUN/board/requests/NAME under a name that no other process has, with a request that is whole.
fs::path make_request(const fs::path& run_dir, const std::string& text) {
  struct stat reports {};
  if (::stat(reports_of(run_dir).c_str(), &reports) != 0) fail_errno("cannot look at", reports_of(run_dir).string());
  if (::geteuid() != 0 && ::geteuid() != reports.st_uid)
    fail<Error>("only the user whose run it is (number {}) may ask", reports.st_uid);
  const fs::path requests = requests_of(run_dir);
  if (::mkdir(requests.c_str(), 0777) == 0)
    give_to(reports.st_uid, requests);
  else if (errno != EEXIST)
    fail_errno("cannot make", requests.string());
  std::string hidden = (requests / ".XXXXXX").string();
  if (!::mkdtemp(hidden.data())) fail_errno("cannot make a folder in", requests.string());
  const fs::path folder = requests / fs::path(hidden).filename().string().substr(1);
  try {
    if (!replace_unsynced(fs::path(hidden) / kRequestFile, text)) fail_errno("cannot write in", hidden);
    give_to(reports.st_uid, fs::path(hidden) / kRequestFile);
    give_to(reports.st_uid, hidden);
    rename_path(hidden, folder);
  } catch (const Error&) {
    try_remove_tree(hidden);
    throw;
  }
  return folder;
}

std::optional<StackAnswer> answer_in(const fs::path& file) {
  try {
    return parse_answer(read_file(file));
  } catch (const Error&) {
    return {};  // not there yet, or of another version
  }
}

}  // namespace

std::string to_text(const StackRequest& request) {
  ordered_json json{{"format", kRequestFormat}, {"time", request.time}, {"ranks", ordered_json::array()}};
  for (const AskedRank& each : request.ranks)
    json["ranks"].push_back({{"rank", each.rank}, {"node", each.node}, {"process", each.process}});
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

StackRequest parse_request(const std::string& text) {
  return read_text(text, "a request for stacks", [](const nlohmann::json& json) {
    StackRequest request{json.at("time"), {}};
    for (const auto& each : json.at("ranks"))
      request.ranks.push_back({each.at("rank"), each.at("process"), each.at("node")});
    return request;
  });
}

std::string to_text(const StackAnswer& answer) {
  ordered_json json{{"format", kRequestFormat}, {"whole", answer.is_whole}, {"stacks", to_json(answer.stacks)}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

StackAnswer parse_answer(const std::string& text) {
  return read_text(text, "an answer with stacks", [](const nlohmann::json& json) {
    return StackAnswer{json.at("whole"), stacks_in(json.at("stacks"))};
  });
}

std::string answer_file(const std::string& node) { return node + ".answer"; }

StackQuestion::StackQuestion(const fs::path& run_dir, const std::vector<AskedRank>& ranks)
    : folder_(make_request(run_dir, to_text(StackRequest{unix_time_s(), ranks}))) {
  remove_old(requests_of(run_dir), folder_);
  for (const AskedRank& each : ranks)
    if (std::ranges::find(nodes_, each.node) == nodes_.end()) nodes_.push_back(each.node);
}

StackQuestion::~StackQuestion() {
  if (!try_remove_tree(folder_).empty()) try_remove_tree(folder_);  // an answer came meanwhile
}

std::map<std::string, StackAnswer> StackQuestion::wait(double begin_s) const {
  std::map<std::string, StackAnswer> answers;
  std::map<std::string, std::chrono::steady_clock::time_point> last;  // when each node sent something new
  const auto begin = std::chrono::steady_clock::now();
  const auto is_awaited = [&](const std::string& node) {
    const auto found = answers.find(node);
    if (found == answers.end()) return seconds_since(begin) < begin_s;
    return !found->second.is_whole && seconds_since(last[node]) < kEachStack_s;
  };
  while (std::ranges::any_of(nodes_, is_awaited)) {
    std::this_thread::sleep_for(kLook);
    for (const std::string& name : names_in(folder_)) {
      const auto node = std::ranges::find_if(nodes_, [&](const auto& each) { return answer_file(each) == name; });
      if (node == nodes_.end() || (answers.contains(*node) && answers[*node].is_whole)) continue;
      const auto answer = answer_in(folder_ / name);
      const bool is_new = answer && (answer->is_whole || !answers.contains(*node) ||
                                     answer->stacks.size() > answers[*node].stacks.size());
      if (!is_new) continue;
      answers[*node] = *answer;
      last[*node] = std::chrono::steady_clock::now();
    }
  }
  return answers;
}

namespace {

constexpr off_t kMostBytes = 65'536;  // a request has at most kMostStacks ranks

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  // True if it is of the kind (S_IFDIR, S_IFREG), and belongs to the user of this process.
  bool is_own(mode_t kind) const {
    struct stat found {};
    return number_ >= 0 && ::fstat(number_, &found) == 0 && (found.st_mode & S_IFMT) == kind &&
           found.st_uid == ::geteuid();
  }
  int number() const { return number_; }

 private:
  int number_;
};

// Returns the request in a folder; nothing if it has none yet. One that may not be answered has no ranks.
std::optional<StackRequest> request_in(const fs::path& folder) {
  const Descriptor place(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!place.is_own(S_IFDIR)) return StackRequest{};
  const Descriptor file(::openat(place.number(), kRequestFile, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.number() < 0) return {};
  if (!file.is_own(S_IFREG)) return StackRequest{};
  std::string text(kMostBytes, '\0');
  const ssize_t bytes = ::read(file.number(), text.data(), text.size());
  if (bytes < 0) return {};
  text.resize(static_cast<size_t>(bytes));
  try {
    return parse_request(text);
  } catch (const Error&) {
    return StackRequest{};  // another version wrote it
  }
}

}  // namespace

std::vector<FoundRequest> RequestWatch::look(double now) {
  std::map<std::string, StackRequest> there;
  std::vector<FoundRequest> found;
  for (const std::string& name : names_in(requests_of(run_dir_))) {
    const fs::path folder = requests_of(run_dir_) / name;
    if (name.starts_with('.')) continue;
    if (const auto known = known_.find(name); known != known_.end()) {
      there.insert(known_.extract(known));
    } else if (const auto request = request_in(folder)) {
      there.emplace(name, *request);
      FoundRequest own{folder, {}};
      for (const AskedRank& each : request->ranks)
        if (each.node == node_) own.ranks.push_back(each);
      if (!own.ranks.empty() && std::abs(now - request->time) <= kRequestLife_s) found.push_back(std::move(own));
    }
  }
  for (const auto& [name, request] : there)
    if (!request.ranks.empty() && request.ranks.front().node == node_ && now - request.time > kRequestLife_s)
      try_remove_tree(requests_of(run_dir_) / name);
  known_ = std::move(there);
  return found;
}

void answer_request(const FoundRequest& request, const SharedMemory& memory, const fs::path& memory_file) {
  const fs::path file = request.folder / answer_file(memory.header().node);
  StackAnswer answer;
  const auto is_asked = [&](const Identity& identity) {
    return std::ranges::find(request.ranks, AskedRank{identity.rank, identity.process, memory.header().node}) !=
           request.ranks.end();
  };
  if (!replace_unsynced(file, to_text(answer))) return;  // the one who asked has left
  read_stacks(memory, memory_file, is_asked, [&](const RankStack& stack) {
    answer.stacks.push_back(stack);
    replace_unsynced(file, to_text(answer));
  });
  answer.is_whole = true;
  replace_unsynced(file, to_text(answer));
}

}  // namespace athanor::board
