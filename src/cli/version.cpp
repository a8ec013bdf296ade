#include "cli/version.h"

#include <fmt/core.h>

#include <filesystem>

#include "base/build_info.h"
#include "base/own_folder.h"
#include "base/process.h"
#include "kernels/matmul_path.h"

namespace athanor::inline cli {
namespace {

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

std::string libtorch_text(const BuildInfo& build) {
  return build.libtorch.empty() ? "none" : fmt::format("{} in {}", build.libtorch, build.libtorch_folder);
}

std::string cuda_text(const BuildInfo& build) {
  if (build.libtorch.empty()) return "none";
  return (build.nvcc.empty() ? "no kernels (no nvcc at build time)" : "kernels by nvcc " + build.nvcc) +
         (build.libtorch_cuda.empty() ? "; " + build.why_no_cuda : "; libtorch for CUDA " + build.libtorch_cuda);
}

std::string parquet_text() {
  std::error_code ignored;
  return std::filesystem::exists(own_folder() / "libathanor_parquet.so", ignored) ? "yes" : "no";
}

}  // namespace

std::string version_text() {
  const BuildInfo& build = build_info();
  return fmt::format("athanor {} ({})\n", build.version, build.commit) + fmt::format("compiler  {}\n", build.compiler) +
         fmt::format("libtorch  {}\n", libtorch_text(build)) + fmt::format("CUDA      {}\n", cuda_text(build)) +
         fmt::format("MPI       {}\n", or_none(build.mpi)) + fmt::format("Parquet   {}\n", parquet_text()) +
         fmt::format("CPU       {} with {}", cpu_model(), kernels::describe_instructions());
}

}  // namespace athanor::inline cli
