# All dependencies: system packages first (scripts/setup installs them), then libtorch from the wheel or from any folder
# that ATHANOR_LIBTORCH (or CMAKE_PREFIX_PATH) names.

find_package(Threads REQUIRED)
if(ATHANOR_FRONT)
  find_package(fmt REQUIRED)
  find_package(spdlog REQUIRED)
  find_package(nlohmann_json REQUIRED)
  find_package(CLI11 REQUIRED)
  find_package(tomlplusplus REQUIRED)
  find_package(ZLIB REQUIRED)
  find_package(yaml-cpp REQUIRED)  # task files
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
  pkg_check_modules(SIMDJSON REQUIRED IMPORTED_TARGET simdjson)
  pkg_check_modules(LIBEVENT REQUIRED IMPORTED_TARGET libevent_extra libevent_core)  # `athanor report --live`
  pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
  pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
  # pkg-config is not used here, since its file also requires the training library.
  find_path(SENTENCEPIECE_INCLUDE sentencepiece_processor.h REQUIRED)
  find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
  find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
endif()
if(ATHANOR_TESTS)
  enable_testing()
  if(ATHANOR_FRONT)
    find_package(GTest REQUIRED)
  else()  # the `cuda` preset needs nothing but a libtorch
    find_package(GTest)
    if(NOT GTest_FOUND)
      message(STATUS "Tests: left out, no GoogleTest found (libgtest-dev; GTest_DIR)")
      set(ATHANOR_TESTS OFF)
    endif()
  endif()
endif()

if(ATHANOR_CORE)
  include(athanor_libtorch)
endif()
