#include "base/launched.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

namespace athanor {
namespace {

using namespace std::chrono_literals;

std::optional<int> variable(const char* name) {
  const char* text = std::getenv(name);
  int value = 0;
  if (!text || std::from_chars(text, text + std::strlen(text), value).ec != std::errc{} || value < 0) return {};
  return value;
}

bool found(const char* rank_name, const char* size_name, const char* launcher, Launched& found) {
  const auto rank = variable(rank_name), size = variable(size_name);
  if (!rank || !size || *rank >= *size) return false;
  found = {*rank, *size, launcher};
  return true;
}

// Open MPI's launchers serve PMIx, of which every process may ask for the end of its job. The two functions are called
// by name, as they are in each version of the library; a launcher without it learns from our exit code.
void abort_by_pmix(int exit_code) {
  void* library = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
  using Init = int (*)(void*, void*, size_t);
  using Abort = int (*)(int, const char*, void*, size_t);
  const auto init = reinterpret_cast<Init>(::dlsym(library, "PMIx_Init"));
  const auto abort = reinterpret_cast<Abort>(::dlsym(library, "PMIx_Abort"));
  if (!init || !abort || init(nullptr, nullptr, 0) != 0) return;
  abort(exit_code, "", nullptr, 0);
}

// MPICH's own launcher reads lines of PMI 1 from each process.
void abort_by_pmi(int exit_code) {
  const auto socket = variable("PMI_FD");
  if (!socket || !std::getenv("HYDI_CONTROL_FD")) return;
  const std::string line = "cmd=abort exitcode=" + std::to_string(exit_code) + "\n";
  if (::write(*socket, line.data(), line.size()) < 0) return;
}

}  // namespace

Launched launched() {
  Launched me;
  if (found("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI", me)) return me;
  if (std::getenv("PMIX_NAMESPACE") && (found("PMIX_RANK", "SLURM_STEP_NUM_TASKS", "Open MPI", me) ||
                                        found("PMIX_RANK", "SLURM_NTASKS", "Open MPI", me)))
    return me;
  found("PMI_RANK", "PMI_SIZE", "MPICH", me);
  return me;
}

std::span<const char* const> launcher_prefixes() {
  static constexpr const char* kPrefixes[] = {"OMPI_", "PMIX_",     "PMI_",
                                              "HYDI_", "MPI_LOCAL", "MPIR_CVAR_CH3_INTERFACE"};
  return kPrefixes;
}

void let_rank_0_speak(const Launched& me, std::chrono::milliseconds patience) {
  // One after another, so that of several ranks with the same news one is heard: a launcher needs about a tenth of a
  // second to end those on its own host.
  if (me.rank > 0) std::this_thread::sleep_for(patience + std::min(me.rank, 10) * 200ms);
}

void end_job(const Launched& me, int exit_code) {
  std::fflush(nullptr);
  if (me.size > 1) {
    // A launcher may drop what it has not passed on when it is told to abort, and on a busy machine it reads late.
    std::this_thread::sleep_for(300ms);
    if (me.launcher == "Open MPI") abort_by_pmix(exit_code);
    if (me.launcher == "MPICH") abort_by_pmi(exit_code);
    // The launcher's signal is on its way; leaving first would have it say that a process failed.
    std::this_thread::sleep_for(10s);
  }
  std::_Exit(exit_code);
}

}  // namespace athanor
