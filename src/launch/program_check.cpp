#include "launch/program_check.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/text.h"

namespace athanor::launch {
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
