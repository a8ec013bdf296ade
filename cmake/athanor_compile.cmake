# Warnings, sanitizers, ccache.

add_library(athanor_flags INTERFACE)
target_compile_options(athanor_flags INTERFACE -Wall -Wextra -Wshadow -Wno-unknown-pragmas
  # One expression, one rounding: a compiler that fuses a*b+c where it likes would change bits with its version.
  -ffp-contract=off
  # Neither changes a result; without them no loop with a square root or a choice becomes a vector loop.
  -fno-math-errno -fno-trapping-math)
target_include_directories(athanor_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)

# Off for users: their compiler may be newer than ours and warn about more.
if(ATHANOR_WERROR)
  target_compile_options(athanor_flags INTERFACE -Werror)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(athanor_flags INTERFACE -Wno-restrict)  # GCC 12 sees overlaps in std::string that are not there
endif()

if(ATHANOR_SANITIZE)
  target_compile_options(athanor_flags INTERFACE -fsanitize=${ATHANOR_SANITIZE} -fno-omit-frame-pointer -g)
  target_link_options(athanor_flags INTERFACE -fsanitize=${ATHANOR_SANITIZE})
endif()
if(ATHANOR_FUZZ)
  # Coverage for the fuzzer in every room; only the targets themselves link its main.
  target_compile_options(athanor_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined -g)
  target_link_options(athanor_flags INTERFACE -fsanitize=address,undefined)
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache hits precompiled headers only if it may ignore their time stamps.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()
