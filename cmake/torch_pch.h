// What nearly every file with libtorch includes; compiled once.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#ifdef FMT_SHARED  // the kernels alone are built with a libtorch and nothing else
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#endif
