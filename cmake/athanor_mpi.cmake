# libathanor_mpi_openmpi.so and libathanor_mpi_mpich.so: our Wire over each MPI that is found. The program opens the one of the
# launcher that started it. Without any, `athanor` is complete except for runs of several processes.
#
# The MPI's compiler wrapper is asked for its flags; our own compiler does the rest.

set(ATHANOR_MPI AUTO CACHE STRING
  "Compiler wrappers of the MPIs to build for, as a list (mpicc of any folder); AUTO: those on the PATH; OFF: none")

function(athanor_mpi_plugin wrapper)
  execute_process(COMMAND ${wrapper} -show OUTPUT_VARIABLE line ERROR_QUIET RESULT_VARIABLE failed
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(failed OR NOT line)
    message(STATUS "MPI: ${wrapper} does not answer to -show, left out")
    return()
  endif()
  # Open MPI's wrapper knows --showme, MPICH's family (Intel's, Cray's) does not.
  execute_process(COMMAND ${wrapper} --showme:version OUTPUT_VARIABLE version ERROR_QUIET RESULT_VARIABLE other)
  set(kind openmpi)
  if(other)
    set(kind mpich)
    execute_process(COMMAND ${wrapper} -v OUTPUT_VARIABLE version ERROR_QUIET)
  endif()
  if(TARGET athanor_mpi_${kind})
    return()
  endif()
  string(REGEX MATCH "(Open MPI|MPICH)[A-Za-z ]* ([0-9.]+)" unused "${version}")
  set_property(GLOBAL APPEND PROPERTY ATHANOR_MPI_VERSIONS "${CMAKE_MATCH_1} ${CMAKE_MATCH_2}")

  separate_arguments(words UNIX_COMMAND "${line}")
  list(POP_FRONT words)  # the compiler
  add_library(athanor_mpi_${kind} SHARED ${CMAKE_SOURCE_DIR}/src/wire/mpi/mpi_wire.cpp)
  target_link_libraries(athanor_mpi_${kind} PRIVATE athanor_flags)
  # The MPIs no longer have C++ bindings, but their headers still offer them.
  target_compile_definitions(athanor_mpi_${kind} PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  foreach(word ${words})
    if(word MATCHES "^-I(.+)")
      target_include_directories(athanor_mpi_${kind} SYSTEM PRIVATE ${CMAKE_MATCH_1})
    elseif(word MATCHES "^-L(.+)")
      target_link_options(athanor_mpi_${kind} PRIVATE ${word} -Wl,-rpath,${CMAKE_MATCH_1})
    elseif(word MATCHES "^-l")
      target_link_libraries(athanor_mpi_${kind} PRIVATE ${word})
    elseif(word MATCHES "^-Wl,")
      target_link_options(athanor_mpi_${kind} PRIVATE ${word})
    endif()
  endforeach()
  add_dependencies(athanor_comm athanor_mpi_${kind})  # opened at run time, so whoever links the room needs it built
  message(STATUS "MPI: a plugin for ${kind}, by ${wrapper}")
endfunction()

if(ATHANOR_MPI STREQUAL "AUTO")
  foreach(name mpicc.openmpi mpicc.mpich mpicc)
    find_program(ATHANOR_WRAPPER_${name} ${name})
    if(ATHANOR_WRAPPER_${name})
      athanor_mpi_plugin(${ATHANOR_WRAPPER_${name}})
    endif()
  endforeach()
elseif(ATHANOR_MPI)
  foreach(wrapper ${ATHANOR_MPI})
    athanor_mpi_plugin(${wrapper})
  endforeach()
endif()
if(NOT TARGET athanor_mpi_openmpi AND NOT TARGET athanor_mpi_mpich)
  message(STATUS "MPI: none found (libopenmpi-dev or libmpich-dev; ATHANOR_MPI), so runs have one process")
endif()
