#pragma once
// Reads a `transformers` folder: config.json and the weights of one or several safetensors files, as our parameters.

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "arch/inventory.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/safetensors.h"

namespace athanor {

class HfFolder {
 public:
  /// Opens and checks everything but the weights' values.
  /// @throws CheckpointError that names all missing, unexpected and mis-shaped tensors at once, or the damaged file.
  static HfFolder open(const std::filesystem::path& folder);

  const HfConfig& config() const { return config_; }
  const ModelConfig& model() const { return config_.model; }
  /// Every parameter, in the order of the inventory, experts stacked.
  const std::vector<ParameterSpec>& parameters() const { return parameters_; }

  /// Elements [first, first + out.size()), row-major, of a logical parameter, as fp32 from whatever is stored.
  /// Thread-safe.
  void read(const std::string& name, int64_t first, std::span<float> out) const;
  /// All of it; `out` has room for the parameter.
  void read(const std::string& name, float* out) const;

 private:
  /// A run of a logical parameter's elements, `count` long, in a stored tensor.
  struct Segment {
    const SafetensorsFile* file;
    std::string tensor;
    int64_t first, count;
  };
  struct Located {
    int64_t num_elements = 0;
    std::vector<Segment> segments;
  };

  HfFolder() = default;
  void open_files(const std::filesystem::path& folder);
  void locate_parameters(const std::string& where);
  Located locate(const ParameterSpec& parameter, std::vector<std::string>& problems);
  /// The file that holds the tensor, noting that it is used; null, and a problem, if it is missing or does not fit.
  const SafetensorsFile* claim(const std::string& name, const Shape& shape, std::vector<std::string>& problems);

  HfConfig config_;
  std::vector<ParameterSpec> parameters_;
  std::map<std::string, SafetensorsFile> files_;
  struct Stored {
    const SafetensorsFile* file;
    bool used = false;
  };
  std::map<std::string, Stored> stored_;
  std::map<std::string, Located> located_;
};

/// Is this a folder that HfFolder might open?
bool is_hf_folder(const std::filesystem::path& folder);

}  // namespace athanor
