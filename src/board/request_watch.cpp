#include "board/request_watch.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "board/place.h"
#include "board/run_files.h"

namespace athanor::board {
namespace fs = std::filesystem;
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
  std::error_code failed;
  for (const auto& [name, request] : there)
    if (!request.ranks.empty() && request.ranks.front().node == node_ && now - request.time > kRequestLife_s)
      fs::remove_all(requests_of(run_dir_) / name, failed);
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
