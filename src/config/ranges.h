#pragma once
// How large a number of the configuration may be. Each bound is where the type it is computed with ends, or far beyond
// what anybody runs and small enough that products of a few of them do not overflow 64 bits; docs/limits.md lists the
// fields.

#include <cfloat>
#include <cstdint>

namespace athanor {

inline constexpr int64_t kMaxRanks = int64_t{1} << 20;      ///< degrees are ints; as `athanor config --ranks`
inline constexpr int64_t kMaxLayers = int64_t{1} << 16;     ///< also stages: inventories and schedules walk them
inline constexpr int64_t kMaxExperts = int64_t{1} << 16;    ///< ids travel as int32
inline constexpr int64_t kMaxWidth = int64_t{1} << 24;      ///< of a matrix: two of them make 2^48 elements
inline constexpr int64_t kMaxVocabulary = INT32_MAX;        ///< ids are int32
inline constexpr int64_t kMaxPositions = int64_t{1} << 24;  ///< fp32 counts no further, and angles are computed in it
inline constexpr int64_t kMaxSequences = int64_t{1} << 24;  ///< of a batch: loaders draw it sample by sample
inline constexpr int64_t kMaxSteps = int64_t{1} << 40;      ///< so that the sum over stages fits
inline constexpr int64_t kMaxChunks = 1024;                 ///< of a dispatch: each is a collective of its own
inline constexpr int64_t kMaxThreads = int64_t{1} << 16;    ///< the cores count when a run starts (base/process.h)

inline constexpr int64_t kMaxMicrobatchTokens = INT32_MAX;  ///< their choices' rows are int32
inline constexpr double kMaxStepTokens = 0x1p46;            ///< times experts chosen for each: below 2^62
inline constexpr double kMaxRunTokens = 0x1p62;             ///< counted in int64
inline constexpr double kMaxParameters = 0x1p50;            ///< 16 bytes and more each, in int64

inline constexpr double kMaxFp32 = FLT_MAX;
inline constexpr double kMaxScale = 1e6;  ///< factors and coefficients: what they multiply stays finite

}  // namespace athanor
