# Warnings, sanitizers, ccache.

add_library(athanor_flags INTERFACE)
target_compile_options(athanor_flags INTERFACE -Wall -Wextra -Wshadow -Wno-unknown-pragmas
  # One expression is one rounding: a compiler that fuses a*b+c by its own choice would change bits with its version.
  -ffp-contract=off
  # Neither option changes a result; without them the compiler vectorises no loop with a square root or a choice.
  -fno-math-errno -fno-trapping-math)
target_include_directories(athanor_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)

# Off for users: their compiler may be newer than ours and warn about more.
if(ATHANOR_WERROR)
  target_compile_options(athanor_flags INTERFACE -Werror)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(athanor_flags INTERFACE -Wno-restrict)  # GCC 12 warns of overlaps in std::string that do not exist
  # The compiler looks for garbage whenever its heap has grown by a third, and each time walks all of libtorch's headers. With
  # this it seldom does: a file takes 2.0 GB instead of 1.7, and a fifth less time.
  target_compile_options(athanor_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()

if(ATHANOR_SANITIZE)
  target_compile_options(athanor_flags INTERFACE -fsanitize=${ATHANOR_SANITIZE} -fno-omit-frame-pointer -g)
  target_link_options(athanor_flags INTERFACE -fsanitize=${ATHANOR_SANITIZE})
endif()
if(ATHANOR_FUZZ)
  # Every room has coverage for the fuzzer; only the fuzzers themselves link its main.
  target_compile_options(athanor_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined -g)
  target_link_options(athanor_flags INTERFACE -fsanitize=address,undefined)
endif()

# Several files of a target are compiled as one, so that headers are read and templates are made once for all of them: a
# build from nothing takes half of the time. A batch is small enough for a change of one file to be compiled in 20 s.
option(ATHANOR_UNITY "Compile several files of a target as one" ON)
set(CMAKE_UNITY_BUILD ${ATHANOR_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
if(ATHANOR_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(athanor_flags INTERFACE -Wno-subobject-linkage)  # takes an included .cpp file for a header
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache hits precompiled headers only if it may ignore their time stamps.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${CCACHE})
endif()
