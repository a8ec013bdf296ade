# libathanor_parquet.so, if there is a libparquet: the one in the pyarrow wheel (of the project's virtual environment, or of the
# folder ATHANOR_PYARROW), or an Arrow that CMake finds. Without it `athanor` is complete except for Parquet files.
#
# The wheel has the headers, and the libraries without the links that a linker looks for, so the libraries are given by path. They
# find each other by their own run path, and our library finds them by its run path.

set(ATHANOR_PYARROW "" CACHE PATH "Folder of the pyarrow wheel (with include/ and libparquet.so.*); default: the one in .venv")
option(ATHANOR_PARQUET "Read Parquet files, where Arrow's libparquet is found" ON)

function(athanor_find_parquet)
  set(folders ${ATHANOR_PYARROW})
  if(NOT folders)
    file(GLOB folders ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/pyarrow)
  endif()
  foreach(folder ${folders})
    file(GLOB parquet ${folder}/libparquet.so.*)
    file(GLOB arrow ${folder}/libarrow.so.*)
    if(parquet AND arrow AND EXISTS ${folder}/include/parquet/file_reader.h)
      add_library(athanor_libparquet INTERFACE)
      target_include_directories(athanor_libparquet SYSTEM INTERFACE ${folder}/include)
      target_link_libraries(athanor_libparquet INTERFACE ${parquet} ${arrow})
      message(STATUS "Parquet: with libparquet of ${folder}")
      return()
    endif()
  endforeach()
  if(ATHANOR_PYARROW)
    message(FATAL_ERROR "ATHANOR_PYARROW=${ATHANOR_PYARROW} holds no libparquet.so.* and include/parquet")
  endif()
  find_package(Parquet CONFIG QUIET)
  if(TARGET Parquet::parquet_shared)
    add_library(athanor_libparquet INTERFACE)
    target_link_libraries(athanor_libparquet INTERFACE Parquet::parquet_shared)
    message(STATUS "Parquet: with libparquet ${Parquet_VERSION} of ${Parquet_DIR}")
  else()
    message(STATUS "Parquet: left out, no libparquet found (scripts/setup --parquet, or ATHANOR_PYARROW=FOLDER)")
  endif()
endfunction()

# Fuzzers are built with a sanitizer, which the containers in the wheel's libraries do not support.
if(ATHANOR_PARQUET AND NOT ATHANOR_FUZZ)
  athanor_find_parquet()
else()
  message(STATUS "Parquet: left out (ATHANOR_PARQUET=${ATHANOR_PARQUET}, ATHANOR_FUZZ=${ATHANOR_FUZZ})")
endif()

if(TARGET athanor_libparquet)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/documents/parquet/*.cpp)
  add_library(athanor_parquet SHARED ${sources})
  target_link_libraries(athanor_parquet PRIVATE athanor_flags athanor_libparquet fmt::fmt nlohmann_json::nlohmann_json)
endif()
