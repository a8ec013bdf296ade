#include "ops/matmul_paths.h"

#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "ops/played.h"

namespace athanor::ops {
namespace {

constexpr std::string_view kDefault = "default";

// Returns the paths that the CPU has, whatever the configuration asks for.
MatmulPaths widest_paths() {
  MatmulPaths paths = all_on(kernels::paths_here().back());
  if (kernels::has_matrix_units()) paths.bf16 = all_on(MatmulPath::kLibrary).bf16;
  return paths;
}

MatmulPaths& current() {
  static MatmulPaths paths = default_matmul_paths();
  return paths;
}

}  // namespace

MatmulPath& MatmulPaths::OfType::operator[](ProductKind kind) {
  return kind == ProductKind::kDense ? dense : kind == ProductKind::kGrouped ? grouped : attention;
}
MatmulPath MatmulPaths::OfType::operator[](ProductKind kind) const { return const_cast<OfType&>(*this)[kind]; }

MatmulPaths all_on(MatmulPath path) {
  const MatmulPath fp32 = path == MatmulPath::kAvx512Bf16 ? MatmulPath::kAvx512 : path;
  return {{fp32, fp32, fp32}, {path, path, path}};
}

std::optional<MatmulPath> asked_matmul_path() {
  const char* name = std::getenv("ATHANOR_MATMUL");
  if (!name || !*name || std::string_view(name) == kDefault) return std::nullopt;
  const auto path = kernels::path_named(name);
  ATHANOR_CHECK(path,
                "ATHANOR_MATMUL = \"{}\" is not a way to multiply matrices; there are library, avx2, avx512, "
                "avx512_bf16 and default, and this CPU has {}",
                name, kernels::names_of(kernels::paths_here()));
  ATHANOR_CHECK(kernels::has_path(*path),
                "ATHANOR_MATMUL = \"{}\" asks for instructions that this CPU lacks; it has {}", name,
                kernels::names_of(kernels::paths_here()));
  return path;
}

std::optional<MatmulPaths> asked_matmul_paths() {
  if (const auto path = asked_matmul_path()) return all_on(*path);
  const char* name = std::getenv("ATHANOR_MATMUL");
  return name && std::string_view(name) == kDefault ? std::optional(widest_paths()) : std::nullopt;
}

MatmulPaths default_matmul_paths() {
  if (const auto asked = asked_matmul_paths()) return *asked;
  return widest_paths();
}

const MatmulPaths& matmul_paths() { return current(); }

void set_matmul_paths(const MatmulPaths& paths) { current() = paths; }

bool has_paths(const Tensor& x) {
  return on_host(x) && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

MatmulPath matmul_path(const Tensor& x, ProductKind kind) {
  if (!has_paths(x)) return MatmulPath::kLibrary;
  if (x.is_meta() && played_place() == PlayedPlace::kPlannedHost) return MatmulPath::kAvx2;
  return current().of(x.scalar_type())[kind];
}

}  // namespace athanor::ops
