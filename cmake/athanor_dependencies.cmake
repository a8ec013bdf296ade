# Everything we stand on. System packages first (scripts/setup installs them), libtorch from the wheel or any folder
# that ATHANOR_LIBTORCH (or CMAKE_PREFIX_PATH) names.

find_package(Threads REQUIRED)
if(ATHANOR_FRONT)
  find_package(fmt REQUIRED)
  find_package(spdlog REQUIRED)
  find_package(nlohmann_json REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(tomlplusplus REQUIRED)
  find_package(ZLIB REQUIRED)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
  pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
  pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
  # Not by pkg-config, whose file asks for the training library, too.
  find_path(SENTENCEPIECE_INCLUDE sentencepiece_processor.h REQUIRED)
  find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
  find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
endif()
if(ATHANOR_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
endif()

if(ATHANOR_CORE)
  include(athanor_libtorch)
endif()
