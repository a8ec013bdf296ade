# The linker: mold if the machine has it and the compiler takes it, otherwise the compiler's default.
#
# A test program with libtorch is linked from a few thousand sections and some large shared libraries after every change,
# and mold does this in a fraction of the default linker's time.

set(ATHANOR_LINKER AUTO CACHE STRING "Linker for -fuse-ld: AUTO (mold if it works), DEFAULT (the compiler's), or a name (lld)")

function(athanor_choose_linker)
  if(ATHANOR_LINKER STREQUAL "DEFAULT")
    message(STATUS "Linker: the compiler's default")
    return()
  endif()
  set(name ${ATHANOR_LINKER})
  if(name STREQUAL "AUTO")
    set(name mold)
  endif()
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_LINK_OPTIONS -fuse-ld=${name})
  check_cxx_source_compiles("int main() { return 0; }" ATHANOR_LINKER_${name}_WORKS)
  if(ATHANOR_LINKER_${name}_WORKS)
    target_link_options(athanor_flags INTERFACE -fuse-ld=${name})
    message(STATUS "Linker: ${name}")
  elseif(ATHANOR_LINKER STREQUAL "AUTO")
    message(STATUS "Linker: the compiler's default, since it does not link with mold (scripts/setup installs mold)")
  else()
    message(FATAL_ERROR "ATHANOR_LINKER=${name}, but the compiler does not link with -fuse-ld=${name}")
  endif()
endfunction()

athanor_choose_linker()
