# Target `program`: the programs and the plugins, without the tests (`make build`).
# Component `dist`: what `make dist` packs; tools/dist adds the launcher and the system's libraries.
# Run paths there are relative to each file, and libtorch is found by the launcher.
add_custom_target(program)
foreach(target ballast ballast-bench manual ballast_cuda ballast_mpi ballast_parquet)
  if(TARGET ${target})
    add_dependencies(program ${target})
  endif()
endforeach()

function(ballast_install RUN_PATH DESTINATION)
  foreach(target ${ARGN})
    if(TARGET ${target})
      set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH ${RUN_PATH})
      install(TARGETS ${target} COMPONENT dist RUNTIME DESTINATION ${DESTINATION} LIBRARY DESTINATION ${DESTINATION})
    endif()
  endforeach()
endfunction()

get_property(rooms GLOBAL PROPERTY BALLAST_ROOMS)
list(TRANSFORM rooms APPEND _tests OUTPUT_VARIABLE test_programs)
ballast_install("$ORIGIN/../lib" bin ballast ballast-bench)
ballast_install("" lib ballast_kernels ballast_comm ballast_experts ballast_cuda ballast_mpi ballast_loopback
  ballast_parquet)
ballast_install("$ORIGIN/../../lib" bin/tests ${test_programs} workers_tests training_workers_tests)
# Of run paths only what is relative stays: the rest is where this machine has things.
install(CODE [[
  file(GLOB_RECURSE packed ${CMAKE_INSTALL_PREFIX}/bin/* ${CMAKE_INSTALL_PREFIX}/lib/*)
  foreach(file ${packed})
    set(run_path "")
    file(READ_ELF ${file} RPATH run_path RUNPATH run_path)
    set(relative ${run_path})
    list(FILTER relative INCLUDE REGEX "^[$]ORIGIN")
    list(JOIN run_path ":" run_path)
    list(JOIN relative ":" relative)
    file(RPATH_CHANGE FILE ${file} OLD_RPATH "${run_path}" NEW_RPATH "${relative}")
  endforeach()
]] COMPONENT dist)
install(DIRECTORY configs benchmarks COMPONENT dist DESTINATION . PATTERN "__pycache__" EXCLUDE PATTERN "results" EXCLUDE)
install(PROGRAMS tools/gpu_check COMPONENT dist DESTINATION .)
install(FILES LICENSE COMPONENT dist DESTINATION .)
