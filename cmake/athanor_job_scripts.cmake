# Takes the job scripts of examples/ into the room launch (src/launch/job_script.h), which prints them with changes.

foreach(kind slurm/cpu.sbatch pbs/cpu.pbs)
  get_filename_component(scheduler ${kind} DIRECTORY)
  file(READ ${CMAKE_SOURCE_DIR}/examples/${kind} ${scheduler}_script)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/examples/${kind})
endforeach()
configure_file(${CMAKE_SOURCE_DIR}/cmake/job_scripts.cpp.in ${CMAKE_BINARY_DIR}/job_scripts.cpp @ONLY)
target_sources(athanor_launch PRIVATE ${CMAKE_BINARY_DIR}/job_scripts.cpp)
