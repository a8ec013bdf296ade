#include "launch/programs.h"

#include <arpa/inet.h>
#include <elf.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/text.h"

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

namespace {

constexpr size_t kStart = 256;  // as far as the kernel reads the first line of a script

std::string start_of(const std::filesystem::path& file) {
  std::string start(kStart, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<size_t>(stream.gcount()));
  return start;
}

// The machine that an ELF file is for; nothing for another file.
std::optional<unsigned> machine_of(const std::string& start) {
  if (start.size() < sizeof(Elf64_Ehdr) || !start.starts_with(ELFMAG)) return std::nullopt;
  Elf64_Ehdr header;
  std::memcpy(&header, start.data(), sizeof header);
  return header.e_machine;  // at the same place in files of 32 bits
}

void require_interpreter(const std::string& program, const std::string& start, const Surroundings& here) {
  std::istringstream line(start.substr(2, start.find('\n') - 2));
  std::string interpreter, argument;
  line >> interpreter >> argument;
  ATHANOR_CHECK(interpreter.starts_with('/') && here.find_program(interpreter),
                "COMMAND: {} is a script of {}, which is no program here; correct its first line", program,
                interpreter.empty() ? "nothing" : printable(interpreter));
  const bool is_env = std::filesystem::path(interpreter).filename() == "env";
  if (!is_env || argument.empty() || argument.starts_with('-') || argument.find('=') != argument.npos) return;
  ATHANOR_CHECK(here.find_program(argument), "COMMAND: {} is a script of {}, which is not on the path; correct {}",
                program, printable(argument), "its first line, or load its module");
}

}  // namespace

void require_executable(const std::filesystem::path& program, const Surroundings& here) {
  if (::access(program.c_str(), R_OK) != 0) return;  // it may be executed all the same
  const std::string start = start_of(program), name = program.string();
  if (start.starts_with("#!")) return require_interpreter(name, start, here);
  if (const auto machine = machine_of(start)) {
    const auto own = machine_of(start_of("/proc/self/exe"));
    ATHANOR_CHECK(!own || machine == own,
                  "COMMAND: {} is a program for another kind of processor; build it for this one", name);
    return;
  }
  const bool is_text = std::ranges::all_of(start, [](unsigned char c) { return c >= ' ' || c == '\n' || c == '\t'; });
  ATHANOR_CHECK(!is_text, "COMMAND: {} {}; expected a program, or a script that begins with a line such as #!/bin/sh",
                name, start.empty() ? "is empty" : "is a text without #! in its first line");
}

}  // namespace athanor::launch
