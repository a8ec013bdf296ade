#pragma once
// Upper bounds for the numbers of the configuration. Each bound is the end of the type that the number is computed in,
// or lies far beyond any practical run. Products of a few such numbers do not overflow 64 bits. docs/limits.md lists
// the fields.

#include <cfloat>
#include <cstdint>

namespace athanor::inline config {

inline constexpr int64_t kMaxRanks = int64_t{1}
                                     << 20;  ///< degrees are ints; `athanor config --ranks` has the same bound
inline constexpr int64_t kMaxLayers = int64_t{1}
                                      << 16;  ///< also for pipeline stages: inventories and schedules iterate over them
inline constexpr int64_t kMaxExperts = int64_t{1} << 17;    ///< ids are sent as int32
inline constexpr int64_t kMaxWidth = int64_t{1} << 24;      ///< width of a matrix: two of them make 2^48 elements
inline constexpr int64_t kMaxVocabulary = INT32_MAX;        ///< ids are int32
inline constexpr int64_t kMaxPositions = int64_t{1} << 24;  ///< angles are computed in fp32, which counts no further
inline constexpr int64_t kMaxSequences = int64_t{1} << 24;  ///< sequences of a batch: loaders draw it sample by sample
inline constexpr int64_t kMaxSteps = int64_t{1} << 40;      ///< small enough that the sum over training phases fits
inline constexpr int64_t kMaxChunks = 1024;                 ///< chunks of a dispatch: each is a separate collective
inline constexpr int64_t kMaxThreads = int64_t{1}
                                       << 16;  ///< when a run starts, the cores bound it further (base/process.h)

inline constexpr int64_t kMaxMicrobatchTokens = INT32_MAX;  ///< times experts for each token: rows have int32 numbers
inline constexpr double kMaxStepTokens = 0x1p45;            ///< times experts for each token (kMaxExperts): 2^62
inline constexpr double kMaxRunTokens = 0x1p62;             ///< tokens of all steps, counted in int64
inline constexpr double kMaxPlannedTokens = 0x1p53;         ///< tokens of a schedule: doubles count no further
inline constexpr double kMaxParameters = 0x1p50;            ///< their bytes, 16 or more each, are counted in int64

inline constexpr double kMaxFp32 = FLT_MAX;
inline constexpr double kMaxScale = 1e6;  ///< limit of factors and coefficients: their products stay finite

}  // namespace athanor::inline config
