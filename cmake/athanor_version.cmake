# ${ATHANOR_BUILD_INFO}: the source of build_info() (base/build_info.h), for libathanor only.
#
# The commit is asked for at each build, and the file is written only if the answer is another one: then one file is
# compiled and one library linked, and nothing else, since tests link the room base, which knows no commit.

set(ATHANOR_BUILD_INFO ${CMAKE_BINARY_DIR}/build_info.cpp)
get_property(mpi_versions GLOBAL PROPERTY ATHANOR_MPI_VERSIONS)
list(JOIN mpi_versions ", " mpi_versions)
if(NOT ATHANOR_CORE)
  set(ATHANOR_LIBTORCH_VERSION "")
  set(ATHANOR_LIBTORCH "")
  set(ATHANOR_LIBTORCH_CUDA "")
  set(ATHANOR_WHY_NO_CUDA "")
endif()
set(nvcc "")
if(ATHANOR_CORE AND ATHANOR_NVCC)
  list(JOIN CMAKE_CUDA_ARCHITECTURES " " architectures)
  set(nvcc "${CMAKE_CUDA_COMPILER_VERSION} for ${architectures}")
endif()
set(ATHANOR_COMMIT @ATHANOR_COMMIT@)  # stays as it is for the script
configure_file(${CMAKE_SOURCE_DIR}/cmake/build_info.cpp.in ${ATHANOR_BUILD_INFO}.in @ONLY)

find_program(ATHANOR_GIT git)
add_custom_target(athanor_commit BYPRODUCTS ${ATHANOR_BUILD_INFO}
  COMMAND ${CMAKE_COMMAND} -DGIT=${ATHANOR_GIT} -DSOURCES=${CMAKE_SOURCE_DIR} -DTEMPLATE=${ATHANOR_BUILD_INFO}.in
    -DOUT=${ATHANOR_BUILD_INFO} -P ${CMAKE_SOURCE_DIR}/cmake/write_commit.cmake
  COMMENT "Which commit this is")
