#include "launch/programs.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"

namespace athanor::launch {
namespace {

int file_in_memory(const std::string& text) {
  const int file = ::memfd_create(kRankfile, 0);
  if (file < 0) fail_errno("cannot make", kRankfile);
  for (size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(file, text.data() + done, text.size() - done);
    if (written < 0 && errno != EINTR) fail_errno("cannot write", kRankfile);
    if (written > 0) done += static_cast<size_t>(written);
  }
  return file;
}

}  // namespace

int free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  const bool found = listener >= 0 && ::bind(listener, plain, size) == 0 && ::getsockname(listener, plain, &size) == 0;
  const int reason = errno;
  if (listener >= 0) ::close(listener);
  errno = reason;
  if (!found) fail_errno("cannot find a free port of", "this machine");
  return ntohs(address.sin_port);
}

Programs::Programs(const LaunchPlan& plan, const LaunchCommand& command) {
  if (plan.launcher.flavour != Flavour::kSockets) {
    Program& program = programs_.emplace_back(Program{command.words(), command.variables, {}});
    if (command.rankfile.empty()) return;
    rankfile_ = file_in_memory(command.rankfile);
    const std::string path = fmt::format("/proc/self/fd/{}", rankfile_);
    for (std::string& word : program.words)
      if (const size_t at = word.find(kRankfile); at != word.npos && word.ends_with(kRankfile))
        word = word.substr(0, at) + path;
    return;
  }
  const int ranks = plan.ranks.total(), port = ranks > 1 ? free_port() : 0;
  for (int rank = 0; rank < ranks; ++rank) {
    Program program{plan.command, command.variables, {}};
    if (ranks > 1)
      for (auto& variable : rank_variables(rank, ranks, port)) program.variables.push_back(std::move(variable));
    if (!plan.cores.cpus.empty()) program.cpus = plan.cores.cpus[static_cast<size_t>(rank)];
    programs_.push_back(std::move(program));
  }
}

Programs::~Programs() {
  if (rankfile_ >= 0) ::close(rankfile_);
}

}  // namespace athanor::launch
