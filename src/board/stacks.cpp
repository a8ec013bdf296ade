#include "board/stacks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "base/bounded_json.h"
#include "base/error.h"
#include "base/own_folder.h"
#include "board/node_report.h"
#include "board/own_stack.h"
#include "board/process_state.h"
#include "board/report_socket.h"
#include "board/snapshot.h"

namespace athanor::board {
namespace fs = std::filesystem;
namespace {

constexpr std::chrono::milliseconds kReaderTime{10000}, kSignalTime{2000}, kTracedTime{5000};

// Returns what a program prints; nothing if it fails or takes longer than kReaderTime.
std::optional<std::string> output_of(const fs::path& program, const std::string& argument) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
  std::string name = program.string(), word = argument;
  char* words[] = {name.data(), word.data(), nullptr};
  char* environment[] = {nullptr};
  pid_t child = 0;
  const int failed = ::posix_spawn(&child, name.c_str(), &files, nullptr, words, environment);
  ::posix_spawn_file_actions_destroy(&files);
  ::close(ends[1]);
  std::string text;
  const auto end = std::chrono::steady_clock::now() + kReaderTime;
  while (failed == 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd waited{ends[0], POLLIN, 0};
    char block[4096];
    if (::poll(&waited, 1, std::max(0, static_cast<int>(left.count()))) <= 0) {
      ::kill(child, SIGKILL);  // the threads that it has stopped continue
      break;
    }
    const ssize_t now = ::read(ends[0], block, sizeof(block));
    if (now <= 0) break;
    text.append(block, static_cast<size_t>(now));
  }
  ::close(ends[0]);
  int status = -1;
  if (failed == 0) ::waitpid(child, &status, 0);
  return failed == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? std::optional(text) : std::nullopt;
}

fs::path own_reader() {
  const fs::path program = running_program().parent_path() / "athanor-stacks";
  return ::access(program.c_str(), X_OK) == 0 ? program : fs::path();
}

// Returns the process that traces another, as a debugger does; 0 if there is none.
pid_t tracer_of(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("TracerPid:")) return std::atoi(line.c_str() + 10);
  return 0;
}

// Only one process at a time may trace another. If several users ask for a stack at once, one waits for the other; the
// second try is for a tracer that has left meanwhile.
std::optional<std::string> read_from_outside(const fs::path& reader, pid_t process) {
  const auto end = std::chrono::steady_clock::now() + kTracedTime;
  for (int tries = 0; tries < 2;) {
    if (auto text = output_of(reader, std::to_string(process))) return text;
    if (tracer_of(process) == 0)
      ++tries;
    else if (std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    else
      break;
  }
  return {};
}

std::string words_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += std::to_string(rank) + " ";
  return text + "\n";
}

}  // namespace

RankStack read_stack_of(int rank, pid_t process, const fs::path& reader, const fs::path& memory_file) {
  const uint64_t start = start_of_process(process);
  if (!reader.empty())
    if (const auto text = read_from_outside(reader, process); text && !text->empty())
      return {rank, process, "debugger", *text};
  if (state_of_process(process, start) == ProcessState::kGone)
    return {rank, process, "none", "its process ended while it was read"};
  const pid_t tracer = tracer_of(process);
  const std::string why = reader.empty() ? "there is no program athanor-stacks (the build had no libdw)"
                          : tracer > 0   ? fmt::format("process {} traces it, and only one may", tracer)
                                         : "the system lets no other process read it";
  const bool is_stopped = state_of_process(process, start) == ProcessState::kStopped;
  if (!is_stopped)
    if (const auto text = ask_for_own_stack(memory_file, process, kSignalTime))
      return {rank, process, "signal", "thread " + std::to_string(process) + "\n" + *text};
  return {rank, process, "none",
          why + ", and the process " +
              (is_stopped ? "is stopped, so that it cannot write its own: all that is known is its record"
                          : "did not write its own within 2 s")};
}

void read_stacks(const SharedMemory& memory, const fs::path& memory_file,
                 const std::function<bool(const Identity&)>& is_asked,
                 const std::function<void(const RankStack&)>& take) {
  size_t num_read = 0;
  const fs::path reader = own_reader();
  for_each_live(memory, [&](uint32_t, const Record& record) {
    const Identity& identity = record.identity;
    if (num_read == kMostStacks || !is_asked(identity)) return;
    if (state_of_process(identity.process, identity.process_start) == ProcessState::kGone) return;
    take(read_stack_of(identity.rank, identity.process, reader, memory_file));
    ++num_read;
  });
}

nlohmann::ordered_json to_json(const std::vector<RankStack>& stacks) {
  auto json = nlohmann::ordered_json::array();
  for (const RankStack& stack : stacks)
    json.push_back({{"rank", stack.rank}, {"process", stack.process}, {"how", stack.how}, {"text", stack.text}});
  return json;
}

std::vector<RankStack> stacks_in(const nlohmann::json& json) {
  std::vector<RankStack> stacks;
  for (const auto& each : json)
    stacks.push_back({each.at("rank"), each.at("process"), each.at("how"), each.at("text")});
  return stacks;
}

std::string stacks_to_json(const std::vector<RankStack>& stacks) {
  const nlohmann::ordered_json json{{"format", kReportFormat}, {"stacks", to_json(stacks)}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::vector<RankStack> parse_stacks(const std::string& text) {
  try {
    const auto json = parse_json(text, "what the collector answered");
    if (json.at("format") != kReportFormat) fail<DataError>("another version of the board");
    return stacks_in(json.at("stacks"));
  } catch (const nlohmann::json::exception& error) {
    fail<DataError>("what the collector answered cannot be read: {}", error.what());
  }
}

std::optional<std::vector<RankStack>> ask_for_stacks(const fs::path& run_dir, const std::vector<int>& ranks) {
  const int patience_s = 20 * static_cast<int>(std::min(ranks.size(), kMostStacks));
  for (const Place& place : places_of_this_node(run_dir))
    if (const auto text = ask_collector(place.stacks, words_of(ranks), patience_s)) return parse_stacks(*text);
  return {};
}

}  // namespace athanor::board
