#pragma once
// Scaling of rotary positions beyond the length that a model was first trained for. Names are those of `transformers`.

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"
#include "config/ranges.h"

namespace athanor::inline config {

enum class RopeType { kDefault, kLinear, kDynamic, kYarn, kLlama3, kLongRope };
template <>
inline constexpr auto kWords<RopeType> = words<RopeType>({{"default", RopeType::kDefault},
                                                          {"linear", RopeType::kLinear},
                                                          {"dynamic", RopeType::kDynamic},
                                                          {"yarn", RopeType::kYarn},
                                                          {"llama3", RopeType::kLlama3},
                                                          {"longrope", RopeType::kLongRope}});

struct RopeScaling {
  std::string rope_type = "default";
  double factor = 1.0;
  int64_t original_max_position_embeddings = 0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double attention_factor = 0.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  double mscale = 0.0;
  double mscale_all_dim = 0.0;
  bool truncate = true;
  std::vector<double> short_factor = {}, long_factor = {};

  /// Nothing if rope_type is no such word, as it may be in a model that has not been checked.
  std::optional<RopeType> type() const { return find_value<RopeType>(rope_type); }
  /// YaRN's temperature of attention, §3.4, with a weight of its logarithm.
  double temperature(double weight) const { return 0.1 * weight * std::log(factor) + 1; }
  bool operator==(const RopeScaling&) const = default;

  void describe(Fields& f) {
    f.field("rope_type", rope_type,
            "default: no scaling; linear: positions divided by factor; dynamic: as default up to "
            "max_position_embeddings; longer sequences are not supported; yarn; llama3; longrope: each turned pair of "
            "dims by a factor of its own",
            one_of(words_of<RopeType>()));
    f.field("factor", factor, "how many times longer the context becomes (all except default)",
            between(1.0, kMaxScale));
    f.field("original_max_position_embeddings", original_max_position_embeddings,
            "length before scaling (yarn, llama3, longrope); 0 takes max_position_embeddings",
            between(0, kMaxPositions));
    f.field("low_freq_factor", low_freq_factor,
            "wavelengths above original_max_position_embeddings divided by this are stretched completely (llama3)",
            fp32_up_to(kMaxScale));
    f.field("high_freq_factor", high_freq_factor,
            "wavelengths below original_max_position_embeddings divided by this do not change (llama3)",
            fp32_up_to(kMaxScale));
    f.field("attention_factor", attention_factor,
            "scales queries and keys (yarn, longrope); 0 takes 0.1 ln(factor) + 1, or the value from mscale and "
            "mscale_all_dim, and with longrope √(1 + ln(factor) / ln(original length))",
            zero_or_fp32_up_to(kMaxScale));
    f.field("beta_fast", beta_fast, "dims that turn more often than this in the original length do not change (yarn)",
            fp32_up_to(kMaxScale));
    f.field("beta_slow", beta_slow, "dims that turn less often than this are stretched completely (yarn)",
            fp32_up_to(kMaxScale));
    f.field("mscale", mscale,
            "with mscale_all_dim: weight of ln(factor) in attention_factor (yarn, DeepSeek's); 0: unset",
            zero_or_fp32_up_to(kMaxScale));
    f.field("mscale_all_dim", mscale_all_dim, "the divisor's weight (yarn, DeepSeek's); 0: unset",
            zero_or_fp32_up_to(kMaxScale));
    f.field("truncate", truncate, "the ramp between unchanged and stretched dims begins and ends at whole dims (yarn)");
    const auto above_zero = [](const std::vector<double>& factors) {
      return std::ranges::all_of(factors, [](double each) { return each >= FLT_MIN && each <= kMaxScale; });
    };
    const Check<std::vector<double>> check{"numbers above 0, at most 1e+06", above_zero};
    f.field("short_factor", short_factor, "divisors of the frequencies, one for each turned pair of dims (longrope)",
            check);
    f.field("long_factor", long_factor,
            "the same in sequences that are longer than original_max_position_embeddings (longrope)", check);
  }
};

/// True if the rope type uses original_max_position_embeddings.
inline bool uses_original_length(const RopeScaling& rope) {
  const auto type = rope.type();
  return type == RopeType::kYarn || type == RopeType::kLlama3 || type == RopeType::kLongRope;
}

}  // namespace athanor::inline config
